package e2e

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// The numbers of goroutines and calls of goCalls.
const (
	goroutines = 4
	goNaps     = 10 // of each goroutine
	goFails    = 30
)

//go:noinline
func goNap(d time.Duration) time.Duration {
	time.Sleep(d) // the goroutine may continue on another thread
	return 2 * d
}

// goGrow calls itself on a stack that has to grow, and moves.
//
//go:noinline
func goGrow(n int) int {
	var frame [256]byte
	frame[n%len(frame)] = byte(n)
	if n == 0 {
		runtime.Gosched()
		return int(frame[0])
	}
	return goGrow(n-1) + int(frame[n%len(frame)])
}

// goFail recovers a panic of goPanic in one of three calls.
//
//go:noinline
func goFail(n int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	goPanic(n)
	return nil
}

//go:noinline
func goPanic(n int) {
	if n%3 == 0 {
		panic("it is a multiple of 3")
	}
	sink++
}

// goCalls calls functions a known number of times, and prints how often, with bounds of the time
// of naps in ns.
func goCalls() {
	inEach := func(f func(i int)) {
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() { f(i) })
		}
		wg.Wait()
	}
	begin := time.Now()
	inEach(func(int) {
		for range goNaps {
			goNap(time.Millisecond)
		}
	})
	elapsed, depth := time.Since(begin), func(i int) int { return 50 * (i + 1) }
	begin = time.Now()
	inEach(func(i int) { goGrow(depth(i)) })
	grown := time.Since(begin)
	inEach(func(int) {
		for n := range goFails {
			_ = goFail(n)
		}
	})
	naps, deepest := goroutines*goNaps, 0
	for i := range goroutines {
		deepest += depth(i) + 1
	}
	fmt.Printf("naps %d\nnap_least %d\nnap_most %d\ngrows %d\nouter_most %d\nfails %d\npanics %d\nreturns %d\n",
		naps, naps*int(time.Millisecond), goroutines*int(elapsed), deepest, goroutines*int(grown), goroutines*goFails,
		goroutines*goFails/3, goroutines*(goFails-goFails/3))
}

// Calls of Go functions end where the functions return, also on another thread and on a stack
// that moved. The program survives, and a call that panics has no end.
func TestLatencyGo(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := asWorkload(t, "calls")
	args := []string{"latency", "--unwind", "fp"}
	const prefix = "fulgur/test/e2e."
	intervals := []interval{
		{"goNap", "naps", "", "nap_least", "nap_most", prefix + "goNap"},
		{"goGrow", "grows", "", "", "outer_most", prefix + "goGrow"},
		{"goFail", "fails", "", "", "", prefix + "goFail"},
		{"goPanic", "returns", "panics", "", "", prefix + "goPanic"},
	}
	for _, i := range intervals {
		args = append(args, "-e", "uprobe:"+program+":"+prefix+i.name)
	}
	out := filepath.Join(t.TempDir(), "out.folded")
	args = append(args, "-o", out, "--")
	if testenv.InVM() {
		// With Linux 7.2, a third of the runs failed in random ways while threads moved between
		// CPUs: probably the emulator's mistakes in single steps (see emulated in
		// test/rig/report.go), since no machine without emulation shows them.
		args = append(args, testenv.Tool(t, "taskset"), "-c", "1")
	}
	r := fulgur(t, append(args, program)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	own, stacks := numbers(t, r.stdout), readFolded(t, out)
	for _, i := range intervals {
		i.name = "uprobe:" + program + ":" + prefix + i.name
		of := map[string]int{}
		for stack, n := range stacks {
			if strings.HasSuffix(stack, "["+i.name+"]") {
				of[stack] = n
			}
		}
		i.check(t, r.stderr, of, own)
	}
	if strings.Contains(r.stderr, "not tracked") {
		t.Errorf("intervals were lost: %s", r.stderr)
	}
}

// Returns of Go functions count, with their results.
func TestCountGoReturns(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := asWorkload(t, "calls")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "count", "-e", "uretprobe:"+program+":fulgur/test/e2e.goNap", "--weight", "retval", "-o", out, "--", program)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	naps := numbers(t, r.stdout)["naps"]
	if got, want := sum(readFolded(t, out)), 2*naps*int(time.Millisecond); got != want {
		t.Errorf("got the sum %d of the results, want %d", got, want)
	}
}

// Functions whose ends are in doubt are refused, or left out of patterns.
func TestLatencyGoRefuses(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for function, want := range map[string]string{
		"runtime.memmove":         "the end of a function in assembly is unknown",
		"runtime.rt0_go*":         "the end of a function in assembly is unknown",
		"main.main+4":             "is not the entry of a function",
		"main.nosuchfunction1234": "no such function",
	} {
		r := fulgur(t, "latency", "-e", "uprobe:"+program(t)+":"+function, "1")
		if r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", function, r.code, r.stderr, want)
		}
	}
}

// Programs of versions of Go that keep the goroutine elsewhere are refused.
func TestLatencyOldGo(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	built, err := buildinfo.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	old := "go1.17" + built.GoVersion[len("go1.17"):] // of the same length
	text = bytes.ReplaceAll(text, []byte(built.GoVersion), []byte(old))
	file := filepath.Join(t.TempDir(), "old")
	if err := os.WriteFile(file, text, 0o700); err != nil {
		t.Fatal(err)
	}
	r := fulgur(t, "latency", "-e", "uprobe:"+file+":main.main", "1")
	if want := "older than go1.18"; r.code != 2 || !strings.Contains(r.stderr, want) {
		t.Errorf("got code %d and %q, want 2 and %q", r.code, r.stderr, want)
	}
}
