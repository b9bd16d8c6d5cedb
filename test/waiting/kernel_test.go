package waiting

import (
	"fmt"
	"os"
	"path/filepath"
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
	compared, moved := 0, 0
	for tid, samples := range waited {
		want := before[tid]
		if len(samples) != 1 || samples[0].Value[0] != 1 || len(want) == 0 || strings.Join(want, " ") != strings.Join(after[tid], " ") {
			continue // it did not stay in place
		}
		compared++
		got := kernelFunctions(samples[0])
		if !isSubsequence(want, got) || len(got) > len(want)+4 {
			moved++
			t.Logf("thread %d: %s\nthe kernel says %s", tid, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
	t.Logf("%d threads compared of %d", compared, len(waited))
	// Between the two readings, a thread may have waited elsewhere.
	if compared == 0 || moved > compared/20 {
		t.Errorf("%d of %d threads have a different stack, want at most a twentieth", moved, compared)
	}
}

// kernelStacks returns the kernel functions of each thread's stack, leaf first.
func kernelStacks(t *testing.T) map[int64][]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/task/*/stack")
	if err != nil {
		t.Fatal(err)
	}
	stacks := map[int64][]string{}
	own := fmt.Sprintf("/proc/%d/", os.Getpid()) // this process's threads
	for _, file := range files {
		if strings.HasPrefix(file, own) {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has exited
		}
		var tid int64
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d", &tid); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			// [<0>] function+0x12/0x34
			_, symbol, _ := strings.Cut(line, "] ")
			function, _, _ := strings.Cut(symbol, "+0x")
			stacks[tid] = append(stacks[tid], function)
		}
	}
	return stacks
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
