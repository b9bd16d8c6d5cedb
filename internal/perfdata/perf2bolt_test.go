package perfdata

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bolt"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// profileOf reads input, which is perf.data or text, and returns the profiles of the
// binary at path for LLVM 22 and LLVM 16.
func profileOf(t testing.TB, path string, input []byte) (traces, branches []byte, c *bolt.Collector) {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	functions, err := bolt.NewFunctions(f)
	if err != nil {
		t.Fatal(err)
	}
	write := func(format func(w *bytes.Buffer, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error) []byte {
		b, err := bolt.NewBinary(f)
		if err != nil {
			t.Fatal(err)
		}
		c = bolt.NewCollector(bolt.Options{Duplicates: bolt.KeepDuplicates})
		defer c.Close()
		c.Register(b)
		opts := Options{Find: Match(b), Default: b.FixedLayout()}
		if IsPerfData(input) {
			_, err = collectFrom(t.Context(), bytes.NewReader(input), int64(len(input)), "perf.data", c, opts)
		} else {
			_, err = collectScript(bytes.NewReader(input), "script", c, opts)
		}
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := c.Each(func(b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error { return format(&out, b, traces) }); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	traces = write(func(w *bytes.Buffer, _ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		return bolt.WriteTraces(w, traces)
	})
	branches = write(func(w *bytes.Buffer, b *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		return bolt.WriteBranches(w, b, functions, traces, 0)
	})
	return traces, branches, c
}

// perf2bolt returns the path of perf2bolt in a version of LLVM.
func perf2bolt(t testing.TB, version int) string {
	t.Helper()
	path := fmt.Sprintf("/usr/lib/llvm-%d/bin/perf2bolt", version)
	if _, err := os.Stat(path); err != nil {
		testenv.Skip(t, "needs perf2bolt of LLVM %d (Debian's bolt-%d)", version, version)
	}
	return path
}

// fdata runs perf2bolt, which searches dir for perf first, and returns its output with
// sorted lines.
func fdata(t testing.TB, dir string, version int, args ...string) []string {
	t.Helper()
	testenv.Slow(t)
	out := filepath.Join(t.TempDir(), "fdata")
	cmd := exec.Command(perf2bolt(t, version), append(args, "-o", out)...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	slices.Sort(lines)
	return lines
}

// judge compares perf2bolt's output for fulgur's profiles with its output for input,
// which perf2bolt reads with the perf in dir or the real one.
func judge(t *testing.T, dir, binary, input string, traces, branches []byte, versions ...int) {
	t.Helper()
	file := func(content []byte) string {
		return writeFile(t, filepath.Join(t.TempDir(), "preagg"), content)
	}
	ours22, ours16 := file(traces), file(branches)
	for _, version := range versions {
		t.Run(fmt.Sprint("llvm=", version), func(t *testing.T) {
			want := fdata(t, dir, version, binary, "-p", input)
			if len(want) < 5 {
				t.Fatalf("got only %d lines from perf2bolt for the records", len(want))
			}
			if diff := cmp.Diff(want, fdata(t, dir, version, binary, "--pa", "-p", ours16)); diff != "" {
				t.Errorf("format of LLVM 16 (-from perf +from fulgur):\n%s", diff)
			}
			if version < 22 {
				return
			}
			if diff := cmp.Diff(want, fdata(t, dir, version, binary, "--pa", "-p", ours22)); diff != "" {
				t.Errorf("format of LLVM 22 (-from perf +from fulgur):\n%s", diff)
			}
		})
	}
}

// TestPerf2boltWalk compares with perf2bolt on branch stacks from random walks through
// compiled code, in several processes.
func TestPerf2boltWalk(t *testing.T) {
	testenv.Tool(t, "perf")
	all := []int{16, 19, 22}
	for _, tc := range []struct {
		name     string
		bases    []uint64
		versions []int // few for the large program, which takes long
		flags    []string
	}{
		{"pie", []uint64{0x5555_5555_4000, 0x5577_0000_0000, 0x5601_2345_6000}, all, []string{"-pie", "-fPIE"}},
		{"exec", []uint64{0, 0, 0}, all, []string{"-no-pie", "-fno-pie"}},
		{"static-pie", []uint64{0x7f00_0000_0000}, []int{22}, []string{"-static-pie", "-fPIE"}},
		{"libwalk.so", []uint64{0x7f00_0000_0000, 0x7f01_0000_0000, 0x7f02_0000_0000}, all, []string{"-shared", "-fPIC", "-DLIBRARY"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			binary := compileWalk(t, tc.name, tc.flags...)
			b := walkRecords(t, binary, tc.bases)
			data := b.file(b.compressed(t, recordCompressed))
			input := filepath.Join(t.TempDir(), "perf.data")
			writeFile(t, input, data)
			traces, branches, _ := profileOf(t, binary, data)
			for name, other := range map[string][]byte{
				"file":                b.file(b.plain()),
				"compressed2":         b.file(b.compressed(t, recordCompressed2)),
				"pipe":                b.pipe(b.plain()),
				"pipe and compressed": b.pipe(b.compressed(t, recordCompressed)),
			} {
				traces2, branches2, _ := profileOf(t, binary, other)
				if !bytes.Equal(traces, traces2) || !bytes.Equal(branches, branches2) {
					t.Errorf("%s: got a different profile", name)
				}
			}
			judge(t, "", binary, input, traces, branches, tc.versions...)
		})
	}
}

// walkRecords walks through binary in three processes with different load biases.
// Children of the last process continue the walk or do something else.
func walkRecords(t testing.TB, binary string, bases []uint64) *builder {
	t.Helper()
	f, err := elffile.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := disassemble(t, binary)
	w := &walker{program: p, rng: rand.New(rand.NewPCG(1, 2))}
	b := newBuilder(true)
	b.buildID(binary, f.BuildID())
	var pid int32
	walk := func(pid int32, bias uint64) {
		for range 50 {
			b.sample(pid, w.stack(bias))
		}
		b.finishRound()
	}
	for i, bias := range bases {
		pid = int32(100 + i)
		b.exec(pid, "walk")
		for _, s := range f.Segments() {
			if s.Flags&1 != 0 && s.Type == 1 {
				const page = 0xfff
				start := (s.Addr + bias) &^ page
				b.mmap2(pid, start, (s.Addr+bias+s.FileSize-start+page)&^page, s.Offset&^page, binary)
			}
		}
		b.mmap2(pid, foreign&^0xfff, 0x100000, 0, "/usr/lib/libc.so.6")
		walk(pid, bias)
	}
	bias := bases[len(bases)-1]
	b.fork(pid, pid+1)
	walk(pid+1, bias)
	// perf2bolt would also ignore this child's samples before its exec, so there are
	// none.
	b.fork(pid, pid+2)
	b.exec(pid+2, "other")
	b.sample(pid+2, w.stack(bias))
	return b
}

// TestPerf2boltBasic compares on samples without branches.
func TestPerf2boltBasic(t *testing.T) {
	testenv.Tool(t, "perf")
	binary := compileWalk(t, "pie", "-pie", "-fPIE")
	b := walkRecords(t, binary, []uint64{0x5555_5555_4000, 0x5577_0000_0000})
	data := b.file(b.plain())
	input := writeFile(t, filepath.Join(t.TempDir(), "perf.data"), data)

	f, err := elffile.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bin, err := bolt.NewBinary(f)
	if err != nil {
		t.Fatal(err)
	}
	c := bolt.NewCollector(bolt.Options{})
	defer c.Close()
	c.Register(bin)
	if _, err := collectFrom(t.Context(), bytes.NewReader(data), int64(len(data)), "perf.data", c, Options{Find: Match(bin), Addresses: true}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Each(func(_ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		return bolt.WriteBasic(&out, "cycles:HG:", traces) // perf script's name of the event
	}); err != nil {
		t.Fatal(err)
	}
	ours := writeFile(t, filepath.Join(t.TempDir(), "preagg"), out.Bytes())
	want := fdata(t, "", 22, binary, "-ba", "-p", input)
	if len(want) < 5 {
		t.Fatalf("got only %d lines from perf2bolt for the samples", len(want))
	}
	if diff := cmp.Diff(want, fdata(t, "", 22, binary, "-ba", "--pa", "-p", ours)); diff != "" {
		t.Errorf("(-from perf +from fulgur):\n%s", diff)
	}
}
