package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/symbols/elffile"
)

// dataBinary returns the binary of the real perf.data. It is position-independent, with
// code at link-time address 0x1740 and file offset 0x740.
func dataBinary(t testing.TB) *bolt.Binary {
	t.Helper()
	f, err := elffile.Open(writeFile(t, filepath.Join(t.TempDir(), "prog"), gunzip(t, "propeller_sample_1.bin")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := bolt.NewBinary(f)
	if err != nil {
		t.Fatal(err)
	}
	b.Name = "prog"
	return b
}

// collect reads input and returns the profile for LLVM 22.
func collect(t testing.TB, input []byte, b *bolt.Binary, opts bolt.Options) (string, Stats, error) {
	t.Helper()
	c := bolt.NewCollector(opts)
	defer c.Close()
	c.Register(b)
	var (
		stats Stats
		err   error
	)
	if IsPerfData(input) {
		stats, err = collectFrom(t.Context(), bytes.NewReader(input), int64(len(input)), "in", c, Options{Find: Match(b)})
	} else {
		stats, err = collectScript(bytes.NewReader(input), "in", c, Options{Find: Match(b)})
	}
	if err != nil {
		return "", stats, err
	}
	var out bytes.Buffer
	err = c.Each(func(_ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error { return bolt.WriteTraces(&out, traces) })
	return out.String(), stats, err
}

// Addresses of prog's first code byte in the processes below.
const base1, base2 = 0x1_0000_0740, 0x2_0000_0740

func at(base, offset uint64) bolt.Entry {
	return bolt.Entry{From: base + offset, To: base + offset + 4}
}

// TestProcesses follows processes through forks, execs and a second mapping.
func TestProcesses(t *testing.T) {
	b := newBuilder(false)
	b.mmap2(1, base1&^0xfff, 0x1000, 0, "/usr/bin/prog")
	b.mmap2(2, base2&^0xfff, 0x1000, 0, "/usr/bin/prog (deleted)")
	b.mmap2(3, base2&^0xfff, 0x1000, 0, "/usr/bin/program")
	b.mmap(5, base1&^0xfff, 0x1000, 0, "/usr/bin/prog")
	b.mmapBuildID(6, base1&^0xfff, 0x1000, 0, "/usr/bin/prog", "00112233")
	b.sample(5, []bolt.Entry{at(base1, 0x50)})
	b.sample(6, []bolt.Entry{at(base1, 0x60)}) // of another build
	b.sample(1, []bolt.Entry{at(base1, 0)})
	b.sample(2, []bolt.Entry{at(base2, 0)})
	b.sample(3, []bolt.Entry{at(base2, 0)}) // in another file
	b.sample(1, []bolt.Entry{at(base2, 0)}) // unmapped
	b.sample(1, nil)
	b.fork(2, 4)
	b.sample(4, []bolt.Entry{at(base2, 0x10)})
	b.exec(4, "other")
	b.sample(4, []bolt.Entry{at(base2, 0x20)})
	b.mmap2(4, base1&^0xfff, 0x1000, 0, "/usr/bin/prog") // mapped again, elsewhere
	b.sample(4, []bolt.Entry{at(base1, 0x30)})
	b.fork(3, 2) // reuses the PID of an ended process
	b.sample(2, []bolt.Entry{at(base2, 0x40)})
	b.add(unix.PERF_RECORD_LOST, 0, 1, words(uint64(1), uint64(5)))

	const want = "B 1740 1744 2 0\nB 1750 1754 1 0\nB 1770 1774 1 0\nB 1790 1794 1 0\n"
	got, stats, err := collect(t, b.file(b.plain()), dataBinary(t), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// Samples of process 4 before it maps the binary again are ignored.
	if want := (Stats{Samples: 11, Ignored: 3, NoStack: 1, Lost: 5, Mappings: 4}); stats != want {
		t.Errorf("got stats %+v, want %+v", stats, want)
	}
}

// TestMatch matches the binary by build ID, or by name without one.
func TestMatch(t *testing.T) {
	b := &bolt.Binary{Name: "/build/prog", BuildID: "0123456789abcdef"}
	for _, tc := range []struct {
		path, id string
		want     bool
	}{
		{"/usr/bin/prog", "", true},
		{"/usr/bin/prog (deleted)", "", true},
		{"/usr/bin/program", "", false},
		{"/usr/bin/other", "0123456789abcdef", true},
		{"/usr/bin/other", "0123456789abcdef000000000000000000000000", true},
		{"/usr/bin/prog", "fedcba9876543210", false},
	} {
		if got := Match(b)(Mapped{tc.path, tc.id}) != nil; got != tc.want {
			t.Errorf("%s with build ID %q: got %t, want %t", tc.path, tc.id, got, tc.want)
		}
	}
}

// TestScript reads all variants of perf script's output.
func TestScript(t *testing.T) {
	const mapped = "PERF_RECORD_MMAP2 1/1: [0x100000000(0x1000) @ 0 08:01 1 1]: r-xp /usr/bin/prog\n"
	for _, tc := range []struct{ name, text, want string }{
		{"pid, ip, branches", mapped + "    1        100000740  0x100000740/0x100000744/M/-/-/3  0x100000750/0x100000740/P/-/-/1//NON_SPEC_CORRECT_PATH\n",
			"B 1740 1744 1 1\nT 1750 1740 1740 1\n"},
		{"no pid", mapped + "        100000740  0x100000740/0x100000744/P/-/-/3\n        400740  0x100000740/0x100000744/P/-/-/3\n", "B 1740 1744 2 0\n"},
		{"call chain", mapped + "    1 \n\t       100000740 main+0x1 (/usr/bin/prog)\n\t       100000750\n 0x100000740/0x100000744/-/-/-/3\n\n", "B 1740 1744 1 0\n"},
		{"build ID", "prog 1 12.5: PERF_RECORD_MMAP2 1/1: [0x100000000(0x1000) @ 0x0 <d2ec8bd2b3a6f6b1>]: r-xp /usr/bin/prog\n 1 0x100000740/0x100000744/P/-/-/3\n", ""},
		{"wrong path", mapped + "1 0x100000760/0x100000764/P/-/-/3//- 0x100000740/0x100000744/P/-/-/3//SPEC_WRONG_PATH 0x100000750/0x100000754/P/-/-/3\n",
			"T 1750 1754 1760 1\nB 1760 1764 1 0\n"},
		{"fork and exec", mapped + "PERF_RECORD_FORK(2:2):(1:1)\n 2 0x100000740/0x100000744/P/-/-/3\nPERF_RECORD_COMM exec: a:b:2/2\n 2 0x100000740/0x100000744/P/-/-/3\n", "B 1740 1744 1 0\n"},
		{"made-up fork", mapped + "prog 2 0.000000: PERF_RECORD_FORK(2:2):(1:1)\n 2 0x100000740/0x100000744/P/-/-/3\n", ""},
		{"data", strings.Replace(mapped, "r-xp", "r--p", 1) + " 1 0x100000740/0x100000744/P/-/-/3\n", ""},
		{"message", "Using perf wrapper that supports hot-text.\n" + mapped, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := collect(t, []byte(tc.text), dataBinary(t), bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}

// TestScriptErrors checks that errors contain the line and the reason.
func TestScriptErrors(t *testing.T) {
	const mapped = "PERF_RECORD_MMAP2 1/1: [0x100000000(0x1000) @ 0 08:01 1 1]: r-xp /usr/bin/prog\n"
	for _, tc := range []struct{ text, want string }{
		{"\nPERF_RECORD_MMAP2 1/1: [0x1000\n", "in:2 (offset 0x1): mapping in an unknown format"},
		{" 1 0x1/0x2/?/-/-\n", `in:1 (offset 0x0): expected a branch as perf script -F brstack writes it, found "0x1/0x2/?/-/-"`},
		{mapped + strings.Replace(mapped, "1/1", "2/2", 1) + " 0x1/0x2/P/-/-/1\n", "in:3 (offset 0x9e): samples without process numbers, though several processes"},
		{strings.Repeat("x", maxScriptLine+1), "in:1 (offset 0x0): line of more than"},
		{"1 " + strings.Repeat("0x1/0x2/P/-/-/1 ", perfevent.MaxBranches+1), "in:1 (offset 0x0): sample with more branches"},
	} {
		_, _, err := collect(t, []byte(tc.text), dataBinary(t), bolt.Options{})
		var syntax *bolt.SyntaxError
		if !errors.As(err, &syntax) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("got error %v, want %s", err, tc.want)
		}
	}
}

// TestCollectErrors checks that errors contain the offset and the reason.
func TestCollectErrors(t *testing.T) {
	b := newBuilder(false)
	b.mmap2(1, base1&^0xfff, 0x1000, 0, "/usr/bin/prog")
	b.sample(1, []bolt.Entry{at(base1, 0)})
	good := b.file(b.plain())
	change := func(offset int, v ...any) []byte {
		bad := bytes.Clone(good)
		copy(bad[offset:], words(v...))
		return bad
	}
	const dataAt = fileHeaderSize + 112 + 16 + 8
	sampleAt := dataAt + len(b.records[0])
	for _, tc := range []struct {
		name  string
		input []byte
		want  string
	}{
		{"byte order", []byte(magicOther + "12345678"), "in: perf.data of a machine with the other byte order"},
		{"old", []byte(magicOld + "12345678"), "in: perf.data of perf before 3.2"},
		{"short", []byte(magicFile), "in: too short for perf.data at offset 0x0"},
		{"header", change(8, uint64(20)), "in: header of 20 bytes at offset 0x8"},
		{"data outside", change(48, uint64(1)<<60), "in: data: "},
		{"attrs", change(16, uint64(8)), "in: unlikely table of events"},
		{"ids outside", change(fileHeaderSize+112, uint64(1)<<63), "in: event's ids: "},
		{"record of no length", change(dataAt+6, uint16(3)), fmt.Sprintf("in: record of type 10 says it is 3 bytes long at offset %#x", dataAt)},
		{"sample cut short", change(sampleAt+headerSize+32, uint64(1000)), fmt.Sprintf("in: sample cut short at offset %#x", sampleAt)},
		{"branches", change(sampleAt+headerSize+32, ^uint64(0)), fmt.Sprintf("in: sample with more branches than any hardware records at offset %#x", sampleAt)},
		{"mapping cut short", change(dataAt+6, uint16(40)), fmt.Sprintf("in: record of type 10 cut short at offset %#x", dataAt)},
		{"cut short", good[:sampleAt+20], "in: data: "},
		{"pipe cut short", b.pipe(b.plain()[:20]), "in: record cut short by the end of the data at offset 0x90"},
		{"no event", append([]byte(magicFile), append(words(uint64(pipeHeaderSize)), b.plain()...)...), "in: record of type 10 before any event at offset 0x10"},
		{"no zstd", b.pipe(recordOf(recordCompressed, 0, []byte("not zstd"))), "in: compressed record: invalid input: magic number mismatch at offset 0x90"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := collect(t, tc.input, dataBinary(t), bolt.Options{})
			var format *FormatError
			if !errors.As(err, &format) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
		})
	}
}

// TestBomb checks that a record that decompresses to a huge size takes little memory.
func TestBomb(t *testing.T) {
	b := newBuilder(false)
	var bomb bytes.Buffer
	z, err := zstd.NewWriter(&bomb, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	z.Write(recordOf(100, 0, make([]byte, 1<<15)))
	zeros := make([]byte, 1<<20)
	for range 200 {
		z.Write(zeros)
	}
	z.Flush()
	input := b.pipe(recordOf(recordCompressed, 0, bomb.Bytes()))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = collect(t, input, dataBinary(t), bolt.Options{})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "says it is 0 bytes long") {
		t.Errorf("got error %v, want one about a record of no length", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("got %d bytes allocated, want at most 64 MiB", got)
	}
}

// BenchmarkCollect reads the real perf.data: 119419 branches.
func BenchmarkCollect(b *testing.B) {
	data := gunzip(b, "propeller_sample_1.perfdata1")
	prog := dataBinary(b)
	prog.Name = "propeller_sample_1.bin.gen"
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, _, err := collect(b, data, prog, bolt.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(119419*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkScript reads lines with 32 branches each.
func BenchmarkScript(b *testing.B) {
	var text strings.Builder
	text.WriteString("PERF_RECORD_MMAP2 1/1: [0x100000000(0x1000) @ 0 08:01 1 1]: r-xp /usr/bin/prog\n")
	for range 1000 {
		fmt.Fprintf(&text, "%5d %16x ", 1, uint64(base1))
		for i := range uint64(32) {
			fmt.Fprintf(&text, " %#x/%#x/P/-/-/1", base1+16*i, base1+16*i+8)
		}
		text.WriteByte('\n')
	}
	prog := dataBinary(b)
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, _, err := collect(b, []byte(text.String()), prog, bolt.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(32000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
