package stepping

import (
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"fulgur/internal/bolt"
	"fulgur/internal/elffile"
	"fulgur/internal/process"
	"fulgur/internal/testenv"
)

var (
	mismatching = regexp.MustCompile(`traces mismatching disassembled function contents: (\d+)`)
	outOfRange  = regexp.MustCompile(`out of range traces involving unknown regions: (\d+)`)
)

// TestLLVMBolt steps a program and has llvm-bolt optimise it by what was seen.
func TestLLVMBolt(t *testing.T) {
	const dir = "/usr/lib/llvm-22/bin/" // Debian's links in PATH go by another name
	perf2bolt, llvmBolt := testenv.Tool(t, dir+"perf2bolt"), testenv.Tool(t, dir+"llvm-bolt")
	bin := compile(t, "interpreter", "-O2", "-Wl,--emit-relocs")
	pid := launch(t, bin).Process.Pid
	s := start(t, Options{MaxOverhead: 1}, pid)
	samples := collect(t, s, 50)

	c := bolt.NewCollector(bolt.Options{})
	defer c.Close()
	layout := layoutOf(t, c, bin, pid)
	for _, sample := range samples {
		if err := c.Add(layout, sample.Entries); err != nil {
			t.Fatal(err)
		}
	}
	preagg, fdata := filepath.Join(t.TempDir(), "preagg"), filepath.Join(t.TempDir(), "fdata")
	err := c.Each(func(_ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		f, err := os.Create(preagg)
		if err != nil {
			return err
		}
		if err := bolt.WriteTraces(f, traces); err != nil {
			return err
		}
		return f.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	out := command(t, perf2bolt, bin, "--pa", "-p", preagg, "-o", fdata)
	for _, re := range []*regexp.Regexp{mismatching, outOfRange} {
		if m := re.FindStringSubmatch(out); len(m) == 2 && m[1] != "0" {
			t.Errorf("perf2bolt: %s", m[0])
		}
	}
	if stats := c.Stats(); stats.InsideShare() < 0.99 {
		t.Errorf("%+v", stats)
	}
	optimised := bin + ".bolt"
	command(t, llvmBolt, bin, "-o", optimised, "-data", fdata, "-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-split-functions")
	for _, rounds := range []int{1, 1000} {
		before, after := command(t, bin, strconv.Itoa(rounds)), command(t, optimised, strconv.Itoa(rounds))
		if before != after {
			t.Errorf("%d rounds: %s before, %s after", rounds, before, after)
		}
	}
}

// layoutOf returns where process pid has mapped the program.
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
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := process.ParseMaps(text)
	if err != nil {
		t.Fatal(err)
	}
	var l bolt.Layout
	for _, m := range maps {
		if m.Name != bin {
			continue
		}
		if r, ok := b.Region(m.Start, m.Limit-m.Start, m.Offset); ok {
			l, _ = l.With(r)
		}
	}
	return l
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}
