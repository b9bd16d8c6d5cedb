package stepping

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

var (
	mismatching = regexp.MustCompile(`traces mismatching disassembled function contents: (\d+)`)
	outOfRange  = regexp.MustCompile(`out of range traces involving unknown regions: (\d+)`)
)

// TestLLVMBolt steps a program and has llvm-bolt optimize it with the recorded branches.
func TestLLVMBolt(t *testing.T) {
	testenv.AnyKernel(t)
	const dir = "/usr/lib/llvm-22/bin/" // Debian's links in PATH have other names
	perf2bolt, llvmBolt := testenv.Tool(t, dir+"perf2bolt"), testenv.Tool(t, dir+"llvm-bolt")
	bin := compile(t, "interpreter", "-O2", "-Wl,--emit-relocs")
	pid := launch(t, bin).Process.Pid
	testenv.AwaitCPUTime(t, pid, 100*time.Millisecond) // it has long started to interpret
	s := start(t, Options{MaxOverhead: 1}, pid)
	samples := collect(t, s, 50)

	c := collected(t, bin, pid, samples)
	preagg, fdata := filepath.Join(t.TempDir(), "preagg"), filepath.Join(t.TempDir(), "fdata")
	write(t, c, preagg, bolt.WriteTraces)
	out := command(t, perf2bolt, bin, "--pa", "-p", preagg, "-o", fdata)
	for _, re := range []*regexp.Regexp{mismatching, outOfRange} {
		if m := re.FindStringSubmatch(out); len(m) == 2 && m[1] != "0" {
			t.Errorf("perf2bolt: %s", m[0])
		}
	}
	if stats := c.Stats(); stats.InsideShare() != 1 {
		t.Errorf("got %+v, want all branches inside", stats)
	}
	optimised := bin + ".bolt"
	command(t, llvmBolt, bin, "-o", optimised, "-data", fdata, "-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-split-functions")
	for _, rounds := range []int{1, 1000} {
		before, after := command(t, bin, strconv.Itoa(rounds)), command(t, optimised, strconv.Itoa(rounds))
		if before != after {
			t.Errorf("%d rounds: got %s from the optimized program, want %s", rounds, after, before)
		}
	}
}

// write writes the traces of the only binary to a file.
func write(t *testing.T, c *bolt.Collector, path string, as func(io.Writer, iter.Seq2[bolt.Trace, error]) error) {
	t.Helper()
	err := c.Each(func(_ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		return errors.Join(as(f, traces), f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fakePerf is a perf that prints the files named after its input, for the commands that
// perf2bolt runs.
const fakePerf = `#!/bin/sh
for in; do :; done
case "$*" in
*buildid-list*) cat "$in.ids" ;;
*--show-mmap-events*) cat "$in.maps" ;;
*pid,ip,brstack*) cat "$in.samples" ;;
*pid,brstack*) sed 's/^ *\([0-9]*\) [0-9a-f]*/\1/' "$in.samples" ;;
esac
`

// TestPerf2bolt gives perf2bolt the stepped branches as perf would have recorded them,
// and our profiles of the same branches. Its output must be the same, line by line.
func TestPerf2bolt(t *testing.T) {
	testenv.AnyKernel(t)
	for name, flags := range map[string][]string{
		"pie":        nil,
		"no-pie":     {"-no-pie"},
		"static-pie": {"-static-pie"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := compile(t, "calls", append(flags, "-O2", "-Wl,--emit-relocs", "-Wl,--build-id")...)
			cmd := launch(t, bin)
			pid := cmd.Process.Pid
			s := start(t, Options{MaxOverhead: 4}, pid)
			samples := collect(t, s, 60)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(unix.SIGSTOP); err != nil { // leaves the CPU to perf2bolt
				t.Fatal(err)
			}

			perf := record(t, bin, pid, samples)
			traces, branches := filepath.Join(t.TempDir(), "traces"), filepath.Join(t.TempDir(), "branches")
			// A collector can only be read once.
			write(t, collected(t, bin, pid, samples), traces, bolt.WriteTraces)
			c := collected(t, bin, pid, samples)
			write(t, c, branches, func(w io.Writer, traces iter.Seq2[bolt.Trace, error]) error {
				return bolt.WriteBranches(w, c.Binaries()[0], functions(t, bin), traces, 0)
			})
			for version, profiles := range map[int][]string{22: {traces, branches}, 19: {branches}, 16: {branches}} {
				want := fdata(t, version, bin, "-p", perf)
				if len(want) < 10 {
					t.Errorf("LLVM %d: got only %d lines: %q", version, len(want), want)
				}
				for _, profile := range profiles {
					got := fdata(t, version, bin, "--pa", "-p", profile)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("LLVM %d, %s (-from perf +from fulgur):\n%s", version, filepath.Base(profile), diff)
					}
				}
			}
		})
	}
}

// collected returns a collector with the samples of the process.
func collected(t *testing.T, bin string, pid int, samples []bolt.Sample) *bolt.Collector {
	t.Helper()
	c := bolt.NewCollector(bolt.Options{})
	t.Cleanup(c.Close)
	layout := layoutOf(t, c, bin, pid)
	for _, sample := range samples {
		if err := c.Add(layout, sample.Entries); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func functions(t *testing.T, bin string) *bolt.Functions {
	t.Helper()
	f, err := elffile.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	functions, err := bolt.NewFunctions(f)
	if err != nil {
		t.Fatal(err)
	}
	return functions
}

// record puts a perf into PATH that has "recorded" the samples, and returns the name of
// its file.
func record(t *testing.T, bin string, pid int, samples []bolt.Sample) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("perf", fakePerf, 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	put("in", "PERFILE2", 0o644)
	f, err := elffile.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	put("in.ids", f.BuildID()+" "+bin+"\n", 0o644)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var maps, text strings.Builder
	for _, m := range mapsOf(t, pid) {
		fmt.Fprintf(&maps, "prog %d 1.0: PERF_RECORD_MMAP2 %d/%d: [%#x(%#x) @ %#x 08:01 1 1]: r-xp %s\n", pid, pid, pid, m.Start, m.Limit-m.Start, m.Offset, m.Name)
	}
	put("in.maps", maps.String(), 0o644)
	for _, s := range samples {
		fmt.Fprintf(&text, " %d %x", pid, s.Entries[0].To)
		for _, e := range s.Entries {
			fmt.Fprintf(&text, " %#x/%#x/-/-/-/0", e.From, e.To)
		}
		text.WriteByte('\n')
	}
	put("in.samples", text.String(), 0o644)
	return filepath.Join(dir, "in")
}

// fdata runs a version of perf2bolt on a profile and returns the lines of its output,
// sorted.
func fdata(t *testing.T, version int, bin string, args ...string) []string {
	t.Helper()
	perf2bolt := testenv.Tool(t, fmt.Sprintf("/usr/lib/llvm-%d/bin/perf2bolt", version))
	out := filepath.Join(t.TempDir(), "fdata")
	command(t, perf2bolt, append(args, "-o", out, bin)...)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(strings.Lines(string(b)))
}

// layoutOf returns where process pid maps the program.
func layoutOf(t *testing.T, c *bolt.Collector, bin string, pid int) bolt.Layout {
	t.Helper()
	f, err := elffile.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := bolt.NewBinary(f)
	if err != nil {
		t.Fatal(err)
	}
	c.Register(b)
	var l bolt.Layout
	for _, m := range mapsOf(t, pid) {
		if m.Name != bin {
			continue
		}
		if r, ok := b.Region(m.Start, m.Limit-m.Start, m.Offset); ok {
			l = l.With(r)
		}
	}
	return l
}

// mapsOf returns the executable mappings of process pid.
func mapsOf(t *testing.T, pid int) []procfs.Map {
	t.Helper()
	maps, err := procfs.Process(pid).Maps()
	if err != nil {
		t.Fatal(err)
	}
	return maps
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}
