package waiting

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// For threads that wait all the time, kernel stacks match /proc/PID/stack, which omits
// the scheduler's functions.
func TestKernelStacks(t *testing.T) {
	testenv.Root(t)
	file := filepath.Join(t.TempDir(), "out.pb.gz")
	before := kernelStacks(t)
	if report, err := testenv.Command(t, program(t), "offcpu", "-K", "--per-thread", "-o", file, "0.3").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	after := kernelStacks(t)
	waited := map[int64][]*pprof.Sample{}
	for _, s := range readProfile(t, file).Sample {
		tid := s.NumLabel["tid"][0]
		waited[tid] = append(waited[tid], s)
	}
	compared := 0
	for tid, samples := range waited {
		want := before[tid].functions
		if len(want) == 0 || !before[tid].equal(after[tid]) {
			continue // it ran
		}
		compared++
		if len(samples) != 1 || samples[0].Value[0] != 1 {
			t.Errorf("thread %d: got the stacks %v, want one wait", tid, samples)
			continue
		}
		if got := kernelFunctions(samples[0]); !isSubsequence(want, got) || len(got) > len(want)+4 {
			t.Errorf("thread %d: got %s\nwant %s", tid, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
	t.Logf("%d threads compared of %d", compared, len(waited))
	if compared == 0 {
		t.Error("no thread waited all the time")
	}
}

// place is where a thread is in the kernel.
type place struct {
	functions []string // leaf first
	// switches has how often it left its CPU, voluntarily and otherwise. A thread that waits all
	// the time does not.
	switches string
}

// equal reports whether the thread has not run between two places.
func (p place) equal(other place) bool {
	return p.switches == other.switches && slices.Equal(p.functions, other.functions)
}

// kernelStacks returns the place of each thread.
func kernelStacks(t *testing.T) map[int64]place {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/task/*/stack")
	if err != nil {
		t.Fatal(err)
	}
	places := map[int64]place{}
	own := fmt.Sprintf("/proc/%d/", os.Getpid()) // this process's threads
	for _, file := range files {
		if strings.HasPrefix(file, own) {
			continue
		}
		var tid int64
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d", &tid); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil {
			continue // it has exited
		}
		stack, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, switches, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		at := place{switches: switches}
		for line := range strings.Lines(string(stack)) {
			// [<0>] function+0x12/0x34
			_, symbol, _ := strings.Cut(line, "] ")
			function, _, _ := strings.Cut(symbol, "+0x")
			at.functions = append(at.functions, function)
		}
		places[tid] = at
	}
	return places
}

// kernelFunctions returns the functions of a sample, leaf first, without the note
// on top.
func kernelFunctions(s *pprof.Sample) []string {
	var functions []string
	for _, l := range s.Location[1:] {
		if len(l.Line) > 0 { // otherwise the address has no name
			functions = append(functions, l.Line[len(l.Line)-1].Function.Name)
		}
	}
	return functions
}

func isSubsequence(short, long []string) bool {
	for _, s := range long {
		if len(short) > 0 && short[0] == s {
			short = short[1:]
		}
	}
	return len(short) == 0
}
