package sampleprof_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/autofdo/sampleprof"
	"fulgur/internal/testenv"
)

// text is a profile as LLVM writes it.
const text = `_Z3hotv:1000:7
 1: 20
 2.3: 10 _Z4coldv:8 _Z3fooi:2
 65533: 0
 5: _Z5innerv:300
  1: 9
  2.7: leaf:8
   0: 8
 5: other:20
  0: 1
main:12:0
 0: 12
`

func read(t testing.TB, data string) *sampleprof.Profile {
	t.Helper()
	p := &sampleprof.Profile{}
	add(t, p, data)
	return p
}

// add adds a profile to p, and returns its format.
func add(t testing.TB, p *sampleprof.Profile, data string) sampleprof.Format {
	t.Helper()
	format, err := p.Read(t.Context(), strings.NewReader(data), "in")
	if err != nil {
		t.Fatal(err)
	}
	return format
}

func write(t testing.TB, p *sampleprof.Profile, f sampleprof.Format) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadText(t *testing.T) {
	want := &sampleprof.Profile{Functions: map[string]*sampleprof.Function{
		"main": {Total: 12, Body: map[sampleprof.Location]*sampleprof.Record{{}: {Samples: 12}}},
		"f": {Total: 5, Head: 1, Inlined: map[sampleprof.Call]*sampleprof.Function{
			{Location: sampleprof.Location{Line: 3, Discriminator: 2}, Callee: "g"}: {
				Total: 4, Body: map[sampleprof.Location]*sampleprof.Record{{Line: 1}: {Samples: 4, Targets: map[string]uint64{"h": 3}}},
			},
		}},
	}}
	got := read(t, "# comment\n\nmain:12:0\r\n 0: 12\nf:5:1\n 3.2: g:4\n  1: 4 h:3")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestRoundTrip(t *testing.T) {
	p := read(t, text)
	if d := cmp.Diff(text, write(t, p, sampleprof.Text)); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
	p.Flow = true
	p.Symbols = map[string]struct{}{"main": {}, "unused": {}}
	q := &sampleprof.Profile{}
	if format := add(t, q, write(t, p, sampleprof.Binary)); format != sampleprof.Binary {
		t.Fatalf("got format %q", format)
	}
	if d := cmp.Diff(p, q); d != "" {
		t.Errorf("binary (-want +got):\n%s", d)
	}
}

// LLVM reads both formats, with the same contents and summary as its own files, and
// fulgur reads LLVM's.
func TestAgainstProfdata(t *testing.T) {
	profdata := testenv.Tool(t, "llvm-profdata-19")
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(profdata, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	file := func(name, contents string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p := read(t, text)
	asText, asBinary := file("text", write(t, p, sampleprof.Text)), file("binary", write(t, p, sampleprof.Binary))
	theirs := filepath.Join(dir, "theirs")
	for _, compressed := range [][]string{nil, {"--compress-all-sections"}} {
		run(append([]string{"merge", "--sample", "--extbinary", "-o", theirs, asText}, compressed...)...)
		theirBytes, err := os.ReadFile(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, read(t, string(theirBytes))); d != "" {
			t.Errorf("read of LLVM's file (-want +got):\n%s", d)
		}
	}
	show := func(path string) string { return run("show", "--sample", "--detailed-summary", path) }
	if d := cmp.Diff(show(theirs), show(asBinary)); d != "" {
		t.Errorf("LLVM's view of the binary format (-of its file +of fulgur's):\n%s", d)
	}
	more := write(t, read(t, "_Z3hotv:50:1\n 1: 5\n 2.3: 1 _Z3fooi:9\n 5: other:2\n  0: 2\nnew:1:1\n 0: 1\n"), sampleprof.Binary)
	run("merge", "--sample", "--text", "-o", theirs, asBinary, file("more", more))
	want, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	add(t, p, more)
	if d := cmp.Diff(string(want), write(t, p, sampleprof.Text)); d != "" {
		t.Errorf("sum (-LLVM's +fulgur's):\n%s", d)
	}
}

// Counts stop at the largest number instead of wrapping around.
func TestSaturation(t *testing.T) {
	p := read(t, "f:18446744073709551615:3\n 1: 18446744073709551615 g:5\n")
	add(t, p, "f:2:18446744073709551614\n 1: 1 g:18446744073709551615\n")
	want := "f:18446744073709551615:18446744073709551615\n 1: 18446744073709551615 g:18446744073709551615\n"
	if got := write(t, p, sampleprof.Text); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if q := read(t, write(t, p, sampleprof.Binary)); q.Functions["f"].Total != math.MaxUint64 {
		t.Errorf("got total %d", q.Functions["f"].Total)
	}
}

// sections returns a binary profile with the given sections. list repeats kind, flags and
// contents.
func sections(list ...any) string {
	head := binary.AppendUvarint(binary.AppendUvarint(nil, 0x5350524f46343204), 103)
	n := len(list) / 3
	head = binary.LittleEndian.AppendUint64(head, uint64(n))
	at, body := len(head)+32*n, ""
	for i := 0; i < len(list); i += 3 {
		data := list[i+2].(string)
		for _, v := range []int{list[i].(int), list[i+1].(int), at, len(data)} {
			head = binary.LittleEndian.AppendUint64(head, uint64(v))
		}
		at += len(data)
		body += data
	}
	return string(head) + body
}

func TestMalformed(t *testing.T) {
	var bomb bytes.Buffer
	z := zlib.NewWriter(&bomb)
	for range 64 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	compressed := func(size uint64) string {
		b := binary.AppendUvarint(nil, size)
		b = binary.AppendUvarint(b, uint64(bomb.Len()))
		return string(b) + bomb.String()
	}
	names := "\x01f\x00"
	deep := "\x00" // head
	for range 600 {
		deep += "\x00\x00\x00\x01\x01\x00"
	}
	whole := write(t, read(t, text), sampleprof.Binary)
	for name, test := range map[string]struct{ data, want string }{
		"empty":               {"", "no functions"},
		"no head":             {"f:3\n", "expected a colon"},
		"no total":            {"f:x:3\n", "expected a count"},
		"negative":            {"f:-1:3\n", "expected a count"},
		"no name":             {":1:3\n", "expected the name"},
		"space in a name":     {"f g:1:3\n", "expected the name"},
		"indented":            {" 1: 3\n", "indented too far"},
		"too deep":            {"f:1:3\n  1: 3\n", "indented too far"},
		"line out of range":   {"f:1:3\n 65536: 3\n", "expected LINE"},
		"discriminator":       {"f:1:3\n 1.4294967296: 3\n", "expected LINE"},
		"no samples":          {"f:1:3\n 1:\n", "expected samples"},
		"call and more":       {"f:1:3\n 1: g:3 h:4\n", "expected the end"},
		"target":              {"f:1:3\n 1: 3 g\n", "expected a colon"},
		"contexts":            {"[main:1 @ f]:1:3\n", "llvm-profdata"},
		"probes":              {"f:1:3\n 1: 3\n !CFGChecksum: 12\n", "llvm-profdata"},
		"nested":              {"f:1:3\n" + nested(600), "nested calls"},
		"raw binary":          {"\xff" + whole[1:], "extbinary"},
		"cut in the header":   {whole[:20], "cut short"},
		"cut in a section":    {whole[:len(whole)-3], "beyond the end"},
		"version":             {whole[:9] + "\x68" + whole[10:], "version 104"},
		"many sections":       {sections()[:10] + "\xff\xff\xff\xff\xff\xff\xff\x7f", "sections"},
		"unknown section":     {sections(33, 0, "abc"), "section of kind 33: unknown"},
		"hashes":              {sections(2, 1<<32, "abc"), "hashes"},
		"contexts, binary":    {sections(6, 0, "\x01"), "llvm-profdata"},
		"names cut short":     {sections(2, 0, "\x02f\x00g"), "cut short"},
		"more names":          {sections(2, 0, "\x7ff\x00"), "cut short"},
		"name":                {sections(2, 0, "\x01a\nb\x00"), "not the name"},
		"function of no name": {sections(2, 0, names, 32, 0, "\x00\x05\x00\x00\x00"), "without a name"},
		"nested, binary":      {sections(2, 0, names, 32, 0, deep), "nested calls"},
		"counts cut short":    {sections(2, 0, names, 32, 0, "\x00\x00\x00\x7f\x00"), "cut short"},
		"not compressed":      {sections(2, 1, "\x05\x03abc"), "zlib"},
		"size too small":      {sections(2, 1, compressed(100)), "not 100"},
		"size too large":      {sections(2, 1, compressed(1<<40)), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := new(sampleprof.Profile).Read(t.Context(), strings.NewReader(test.data), "in"); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "in: ") {
				t.Errorf("got error %v, want one about %q", err, test.want)
			}
		})
	}
}

// Reading a line of many words needs little more memory than the line itself.
func TestLongLine(t *testing.T) {
	const words = 1 << 20
	allocated := func(first, word string) uint64 {
		data := "f:1:3\n" + first + strings.Repeat(word, words) + "\n"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		add(t, new(sampleprof.Profile), data)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	// The race detector allocates for each word.
	testenv.Limited(t, 1<<30, time.Minute, func(t *testing.T) {
		comment, targets := allocated("#1: 3", " g:1"), allocated(" 1: 3", " g:1")
		if targets > comment+8*words {
			t.Errorf("allocated %d bytes for %d words, and %d for a comment as long", targets, words, comment)
		}
	})
}

// Reading ends soon after the context.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &sampleprof.Profile{}
	for i := range 10_000 {
		p.Function(fmt.Sprint("f", i)).Total = 1
	}
	for _, format := range []sampleprof.Format{sampleprof.Text, sampleprof.Binary} {
		var got sampleprof.Profile
		if _, err := got.Read(ctx, strings.NewReader(write(t, p, format)), "in"); !errors.Is(err, context.Canceled) || len(got.Functions) > 5000 {
			t.Errorf("%s: got error %v and %d functions", format, err, len(got.Functions))
		}
	}
}

// Names may contain Unicode white space.
func TestUnicodeSpace(t *testing.T) {
	const data = "f:1:3\n 1: 3 g\u00a0h:2\n 2: i\u2003j:1\n  1: 1\n"
	if got := write(t, read(t, data), sampleprof.Text); got != data {
		t.Errorf("got %q, want %q", got, data)
	}
}

// nested returns the lines of nested calls.
func nested(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i+1) + "1: g:1\n")
	}
	return b.String()
}

func TestIsProfile(t *testing.T) {
	for data, want := range map[string]bool{
		text:                                  true,
		"# comment\nf:1:2\n":                  true,
		write(t, read(t, text), "extbinary"):  true,
		"":                                    false,
		"T 11 12 13 4\n":                      false,
		"E cycles:u\n":                        false,
		"B X:1:2 3 4 5\n":                     false,
		"mode: set\nf.go:1.2,3.4 5 6\n":       false,
		strings.Repeat("x", 70000) + ":1:1\n": true,
	} {
		if got := sampleprof.IsProfile([]byte(data)); got != want {
			t.Errorf("%.20q: got %v, want %v", data, got, want)
		}
	}
}

// Every readable profile can be written in both formats and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(text))
	f.Add([]byte(write(f, read(f, text), sampleprof.Binary)))
	f.Add([]byte(sections(2, 0, "\x01f\x00", 3, 0, "a\x00b\x00", 32, 0, "\x01\x00\x05\x01\x02\x03\x04\x01\x00\x09\x01\x01\x02\x00\x01\x00\x00")))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &sampleprof.Profile{}
		if _, err := p.Read(t.Context(), bytes.NewReader(data), "in"); err != nil {
			return
		}
		if q := read(t, write(t, p, sampleprof.Binary)); !cmp.Equal(p, q) {
			t.Fatalf("binary (-want +got):\n%s", cmp.Diff(p, q))
		}
		if len(p.Functions) == 0 {
			return
		}
		p.Flow, p.Symbols = false, nil // not in the text format
		if q := read(t, write(t, p, sampleprof.Text)); !cmp.Equal(p, q) {
			t.Fatalf("text (-want +got):\n%s", cmp.Diff(p, q))
		}
	})
}
