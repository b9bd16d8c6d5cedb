package sampleprof_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/branches/autofdo/sampleprof"
	"fulgur/internal/testenv"
)

// text is a profile as LLVM writes it.
const text = `_Z3hotv.__uniq.7:1000:7
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

// typical returns the profile that text describes.
func typical() *sampleprof.Profile {
	at := func(line, discriminator uint32) sampleprof.Location {
		return sampleprof.Location{Line: line, Discriminator: discriminator}
	}
	p := &sampleprof.Profile{}
	p.Function("main").At(at(0, 0)).Samples = 12
	p.Function("main").Total = 12

	hot := p.Function("_Z3hotv.__uniq.7")
	hot.Total, hot.Head = 1000, 7
	hot.At(at(1, 0)).Samples = 20
	hot.At(at(65533, 0)).Samples = 0
	calls := hot.At(at(2, 3))
	calls.Samples = 10
	calls.AddTarget("_Z3fooi", 2)
	calls.AddTarget("_Z4coldv", 7)
	calls.AddTarget("_Z4coldv", 1)
	other := hot.Call(sampleprof.Call{Location: at(5, 0), Callee: "other"})
	other.Total = 20
	other.At(at(0, 0)).Samples = 1
	inner := hot.Call(sampleprof.Call{Location: at(5, 0), Callee: "_Z5innerv"})
	inner.Total = 300
	inner.At(at(1, 0)).Samples = 9
	leaf := inner.Call(sampleprof.Call{Location: at(2, 7), Callee: "leaf"})
	leaf.Total = 8
	leaf.At(at(0, 0)).Samples = 8
	return p
}

// Counts stop at the largest number instead of wrapping around.
const fullText = `most:1:18446744073709551615
 1: 18446744073709551615 g:18446744073709551615
`

// full returns the profile that fullText describes.
func full() *sampleprof.Profile {
	p := &sampleprof.Profile{}
	f := p.Function("most")
	f.Total, f.Head = 1, sampleprof.Sum(math.MaxUint64, 1)
	r := f.At(sampleprof.Location{Line: 1})
	r.Samples = sampleprof.Product(1<<40, 1<<24)
	r.AddTarget("g", math.MaxUint64)
	r.AddTarget("g", 5)
	return p
}

func write(t testing.TB, p *sampleprof.Profile, f sampleprof.Format) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	for want, p := range map[string]*sampleprof.Profile{text: typical(), fullText: full()} {
		if d := cmp.Diff(want, write(t, p, sampleprof.Text)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// LLVM reads both formats, with the same contents and summary as its own files.
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
	for want, p := range map[string]*sampleprof.Profile{text: typical(), fullText: full()} {
		for _, format := range []sampleprof.Format{sampleprof.Text, sampleprof.Binary} {
			if d := cmp.Diff(want, run("merge", "--sample", "--text", "-o", "-", file("in", write(t, p, format)))); d != "" {
				t.Errorf("%s as text (-want +LLVM's):\n%s", format, d)
			}
		}
	}
	p := typical()
	asText, asBinary := file("text", write(t, p, sampleprof.Text)), file("binary", write(t, p, sampleprof.Binary))
	theirs := filepath.Join(dir, "theirs")
	run("merge", "--sample", "--extbinary", "-o", theirs, asText)
	show := func(path string) string { return run("show", "--sample", "--detailed-summary", path) }
	if d := cmp.Diff(show(theirs), show(asBinary)); d != "" {
		t.Errorf("LLVM's view of the binary format (-of its file +of fulgur's):\n%s", d)
	}

	sections := func(p *sampleprof.Profile) string {
		return run("show", "--sample", "--show-sec-info-only", file("flags", write(t, p, sampleprof.Binary)))
	}
	flow := typical()
	flow.Flow = true
	for name, c := range map[string]struct {
		p    *sampleprof.Profile
		flag string
		want bool
	}{
		"flow-sensitive": {flow, "fs-discriminator", true}, "not flow-sensitive": {p, "fs-discriminator", false},
		"unique": {p, "uniq", true}, "not unique": {&sampleprof.Profile{}, "uniq", false},
	} {
		if got := sections(c.p); strings.Contains(got, c.flag) != c.want {
			t.Errorf("%s: want flag %q: %t, got sections\n%s", name, c.flag, c.want, got)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"main": true, "_Z1fv": true, "runtime.mallocgc": true, "g\u00a0h": true,
		"": false, "operator()<int, 4>": false, "#f": false, "[main": false, "!f": false, "1f": false, "a\nb": false, "a\x7f": false,
	} {
		if got := sampleprof.ValidName(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}
