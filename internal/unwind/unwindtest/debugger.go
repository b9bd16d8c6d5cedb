package unwindtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// Debugger is an independent program that walks the stacks of a stopped process.
type Debugger struct {
	Name string
	// Stacks returns the program counters of each thread, innermost first.
	Stacks func(t testing.TB, pid int) map[int][]uint64
}

// Debuggers returns the installed debuggers: elfutils' eu-stack and gdb.
func Debuggers(t testing.TB) []Debugger {
	t.Helper()
	var list []Debugger
	if _, err := exec.LookPath("eu-stack"); err == nil {
		list = append(list, Debugger{"eu-stack", euStack})
	}
	if _, err := exec.LookPath("gdb"); err == nil {
		list = append(list, Debugger{"gdb", startGDB(t).stacks})
	}
	return list
}

// euStack runs eu-stack.
func euStack(t testing.TB, pid int) map[int][]uint64 {
	cmd := exec.Command(testenv.Tool(t, "eu-stack"), "-q", "-n", "0", "-p", strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	out, _ := cmd.Output() // it fails if a stack cannot be walked to its end
	stacks := map[int][]uint64{}
	tid := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "TID":
			tid, _ = strconv.Atoi(strings.TrimSuffix(fields[1], ":"))
		case len(fields) > 1 && fields[0][0] == '#':
			pc, _ := strconv.ParseUint(fields[1], 0, 64)
			stacks[tid] = append(stacks[tid], pc)
		}
	}
	return stacks
}

// gdb is a gdb that runs testdata/gdb.py. It keeps running, because reading the symbols
// of a program takes much longer than walking stacks.
type gdb struct {
	in     *os.File
	out    *bufio.Reader
	stderr bytes.Buffer
}

func startGDB(t testing.TB) *gdb {
	t.Helper()
	g := &gdb{}
	cmd := exec.Command("gdb", "-nx", "-q", "-batch", "-x", source("gdb.py"))
	cmd.Stderr = &g.stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdin, g.in = read, write
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.in.Close() // ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("gdb: %v\n%s", err, &g.stderr)
		}
	})
	return g
}

func (g *gdb) stacks(t testing.TB, pid int) map[int][]uint64 {
	t.Helper()
	if _, err := fmt.Fprintln(g.in, pid); err != nil {
		t.Fatalf("gdb: %v\n%s", err, &g.stderr)
	}
	stacks := map[int][]uint64{}
	for {
		line, err := g.out.ReadString('\n')
		if err != nil {
			t.Fatalf("gdb: %v\n%s", err, &g.stderr)
		}
		fields := strings.Fields(line)
		if len(fields) == 0 {
			return stacks
		}
		tid, err := strconv.Atoi(fields[0])
		if err != nil {
			continue // gdb's own messages
		}
		for _, field := range fields[1:] {
			pc, _ := strconv.ParseUint(field, 0, 64)
			if pc == 0 {
				break // gdb has lost its way
			}
			stacks[tid] = append(stacks[tid], pc)
		}
	}
}

// Compare compares a stack with a debugger's.
func Compare(got []unwind.Frame, theirs []uint64) Comparison {
	n := min(len(got), len(theirs))
	switch {
	case len(theirs) == 0:
		return Missing
	case !slices.EqualFunc(got[:n], theirs[:n], func(f unwind.Frame, pc uint64) bool { return f.PC == pc }):
		return Different
	case len(got) < len(theirs):
		return Shorter
	case len(got) > len(theirs):
		return Longer
	}
	return Equal
}

// Comparison is the result of [Compare].
type Comparison string

// The results of [Compare]. Shorter and longer stacks agree with the debugger's up to the end
// of the shorter one. Missing means that the debugger has no stack.
const (
	Equal     Comparison = "equal to"
	Shorter   Comparison = "shorter than"
	Longer    Comparison = "longer than"
	Different Comparison = "different from"
	Missing   Comparison = "not seen by"
)

// Tally counts comparisons with debuggers.
type Tally struct {
	// Stacks is the number of stacks, and Confirmed the number that equal at least one
	// debugger's.
	Stacks, Confirmed int
	// By counts the results by name, such as "equal to gdb".
	By map[string]int
}

// Add adds the stacks that debuggers found for a thread, by the debugger's name, and
// returns the results.
func (y *Tally) Add(got []unwind.Frame, theirs map[string][]uint64) map[string]Comparison {
	if y.By == nil {
		y.By = map[string]int{}
	}
	results := map[string]Comparison{}
	known := false
	for name, stack := range theirs {
		results[name] = Compare(got, stack)
		known = known || results[name] == Equal
		y.By[string(results[name])+" "+name]++
	}
	y.Stacks++
	if known {
		y.Confirmed++
	}
	return results
}

// Merge adds another tally's counts.
func (y *Tally) Merge(other Tally) {
	y.Stacks += other.Stacks
	y.Confirmed += other.Confirmed
	if y.By == nil {
		y.By = map[string]int{}
	}
	for what, n := range other.By {
		y.By[what] += n
	}
}

func (y *Tally) String() string {
	return fmt.Sprintf("%d stacks, %d (%.2f %%) equal to a debugger's: %v", y.Stacks, y.Confirmed, 100*float64(y.Confirmed)/float64(max(y.Stacks, 1)), y.By)
}
