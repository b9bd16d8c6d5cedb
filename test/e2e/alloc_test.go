package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// allocations measures what a program that serve started allocates on a command. It returns
// the values of each of its functions that allocate, as NAME_objects, NAME_bytes,
// NAME_live_objects and NAME_live_bytes, and the program's own. The program runs before it is
// measured, so that its unwind tables are ready and all stacks are whole.
func allocations(t *testing.T, pid int, ask func(string) map[string]int, request string, flags ...string) (got, want map[string]int) {
	t.Helper()
	got, want, _ = summedAllocations(t, pid, ask, request, flags...)
	return got, want
}

// summedAllocations also returns the summary.
func summedAllocations(t *testing.T, pid int, ask func(string) map[string]int, request string, flags ...string) (got, want map[string]int, summary string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	c := command(t, append([]string{"alloc", "-o", out, "--ring-size", "64M", "--max-overhead", "100", "-p", strconv.Itoa(pid)}, flags...)...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, c)
	want = ask(request)
	r := interrupt(t, c)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if strings.Contains(r.stderr, "skipped") || strings.Contains(r.stderr, "not tracked") {
		t.Errorf("allocations were lost: %s", r.stderr)
	}
	return allocatedBy(t, out), want, r.stderr
}

// allocatedBy returns the values of the functions by* in a heap profile.
func allocatedBy(t *testing.T, path string) map[string]int {
	t.Helper()
	suffixes := map[string]string{
		"alloc_objects/count": "_objects", "alloc_space/bytes": "_bytes",
		"inuse_objects/count": "_live_objects", "inuse_space/bytes": "_live_bytes",
	}
	got, p := map[string]int{}, readPprof(t, path)
	for _, s := range p.Sample {
		for _, l := range s.Location {
			for _, line := range l.Line {
				name := line.Function.Name
				if name = name[strings.LastIndexByte(name, '.')+1:]; strings.HasPrefix(name, "by") {
					for i, v := range p.SampleType {
						got[name+suffixes[v.Type+"/"+v.Unit]] += int(s.Value[i])
					}
				}
			}
		}
	}
	return got
}

// same compares the values that the profile has with the program's own.
func same(t *testing.T, got, want map[string]int, live bool) {
	t.Helper()
	for name, n := range want {
		if !live && strings.Contains(name, "_live_") {
			continue
		}
		if got[name] != n {
			t.Errorf("%s: got %d, want %d", name, got[name], n)
		}
	}
}

// buildAlloc compiles testdata/alloc.c.
func buildAlloc(t *testing.T) string {
	return compile(t, "alloc.c", "alloc", "-fno-builtin", "-pthread")
}

// With a rate of 1, every allocation by a function of malloc's family counts once, and
// memory that is not freed is live, also in threads and children.
func TestAlloc(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := buildAlloc(t)
	for _, flags := range [][]string{{}, {"--live"}, {"--unwind", "fp"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			if slices.Contains(flags, "fp") {
				testenv.SlowInVM(t)
			}
			pid, ask := serve(t, program)
			got, want := allocations(t, pid, ask, "r", append(flags, "--rate", "1", "--children")...)
			same(t, got, want, slices.Contains(flags, "--live"))
		})
	}
}

// With frame pointers, a probe inside of a function has the callers of that function, although
// the entries of allocators need another first step.
func TestAllocProbesByFramePointers(t *testing.T) {
	testenv.Root(t)
	needCookies(t)
	pid, ask := serve(t, compile(t, "sampler.c", "sampler", "-pthread"))
	out := filepath.Join(t.TempDir(), "out.folded")
	c := command(t, "alloc", "--unwind", "fp", "-o", out, "-p", strconv.Itoa(pid))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, c)
	ask("r")
	if r := interrupt(t, c); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks := readFolded(t, out)
	if len(stacks) == 0 {
		t.Fatal("no stacks")
	}
	for stack := range stacks {
		if !strings.HasSuffix(stack, ";allocate;report") && !strings.HasSuffix(stack, ";by_fraction;report") {
			t.Errorf("got the stack %s, want the caller of report", stack)
		}
	}
}

// A command is measured from its start. Its first stacks can be cut, so this compares sums.
// The C library allocates a few objects itself.
func TestAllocCommand(t *testing.T) {
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	r := fulgur(t, "alloc", "-o", out, "--rate", "1", "--max-overhead", "100", "--", buildAlloc(t))
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	got, want := 0, 0
	for _, s := range readPprof(t, out).Sample {
		got += int(s.Value[0])
	}
	for name, n := range numbers(t, r.stdout) {
		if strings.HasSuffix(name, "_objects") && !strings.HasSuffix(name, "_live_objects") {
			want += n
		}
	}
	const others = 50
	if got < want || got > want+others {
		t.Errorf("got %d allocations, want %d and at most %d of the C library: %s", got, want, others, r.stderr)
	}
}

// Samples are independent, and weighted so that the expected sums equal the program's. The
// bounds follow from the distribution of the sums.
func TestAllocSampling(t *testing.T) {
	testenv.Root(t)
	const rate, small = 1000, 300
	pid, ask := serve(t, buildAlloc(t))
	got, want := allocations(t, pid, ask, "m", "--rate", strconv.Itoa(rate), "--live")
	for _, name := range []string{"by_large_objects", "by_large_bytes", "by_large_live_objects", "by_large_live_bytes"} {
		if got[name] != want[name] {
			t.Errorf("%s: got %d, want exactly %d", name, got[name], want[name])
		}
	}
	for _, live := range []string{"", "_live"} {
		allocated, objects, bytes := want["by_small"+live+"_objects"], got["by_small"+live+"_objects"], got["by_small"+live+"_bytes"]
		if bytes%rate != 0 {
			t.Errorf("got %d%s bytes, want a multiple of %d", bytes, live, rate)
		}
		samples := bytes / rate
		stat.Binomial(allocated, float64(small)/rate).Check(t, "samples"+live, samples)
		stat.Binomial(samples, float64(rate%small)/small).Check(t, "rounded up"+live, objects-samples*(rate/small))
	}
}

// The last allocations of the functions below, so that these escape to the heap.
var (
	allocatedBytes []byte
	allocatedNode  *node
)

type node struct {
	_     *node // it has a pointer, so that the allocator scans it
	value [5]int
}

//go:noinline
func byBytes(n int) { allocatedBytes = make([]byte, n) }

//go:noinline
func byNode() { allocatedNode = &node{value: [5]int{len(allocatedBytes)}} }

// byDepth allocates with every size of its stack, which grows often.
//
//go:noinline
func byDepth(depth int) int {
	var room [150]byte
	room[depth] = 1
	if depth == 0 {
		allocatedBytes = make([]byte, 77)
		return len(allocatedBytes)
	}
	return byDepth(depth-1) + int(room[depth/2])
}

// serveAllocations allocates memory for each byte on standard input.
func serveAllocations() {
	for command := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(command); err != nil {
			return
		}
		allocate()
		fmt.Println("end 0")
	}
}

// allocate allocates memory and prints how much.
func allocate() {
	const rounds = 200
	sum := 0
	for n := 1; n <= rounds; n++ {
		byBytes(n * n)
		sum += n * n
		byNode()
	}
	done := make(chan int)
	for depth := range 100 {
		go func() { done <- byDepth(depth) }()
		<-done
	}
	fmt.Printf("byBytes_objects %d\nbyBytes_bytes %d\n", rounds, sum)
	fmt.Printf("byNode_objects %d\nbyNode_bytes %d\n", rounds, rounds*int(unsafe.Sizeof(node{})))
}

// Every allocation of a Go program counts once, also when the stack grows in the allocator.
func TestAllocGo(t *testing.T) {
	testenv.Root(t)
	t.Setenv("E2E_WORKLOAD", "allocate")
	t.Setenv("GOGC", "off") // the start of a collection allocates, too
	pid, ask := serve(t, os.Args[0])
	got, want := allocations(t, pid, ask, "r", "--rate", "1")
	same(t, got, want, false)
	// Each stack has as many frames of byDepth as its depth.
	const depths = 100
	if frames := depths * (depths + 1) / 2; got["byDepth_objects"] != frames || got["byDepth_bytes"] != 77*frames {
		t.Errorf("byDepth: got %d objects, %d bytes, want %d, %d", got["byDepth_objects"], got["byDepth_bytes"], frames, 77*frames)
	}
	r := fulgur(t, "alloc", "--live", "-p", strconv.Itoa(pid), "1")
	if r.code != 2 || !strings.Contains(r.stderr, "Go's own heap profile") {
		t.Errorf("--live of a Go program: exit code %d, want 2: %s", r.code, r.stderr)
	}
}

// The code of a target is restored when fulgur ends, even by SIGKILL.
func TestAllocRestoresCode(t *testing.T) {
	testenv.Root(t)
	pid, ask := serve(t, buildAlloc(t))
	clean := ask("b")
	describe := func() string { return fmt.Sprintf("the code is %v, clean is %v", ask("b"), clean) }
	for _, how := range []string{"interrupt", "SIGKILL"} {
		c := command(t, "alloc", "--live", "--max-overhead", "100", "-o", filepath.Join(t.TempDir(), "out.pb.gz"), "-p", strconv.Itoa(pid))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, c)
		if got := ask("b"); got["malloc"] == clean["malloc"] || got["calloc"] == clean["calloc"] || got["free"] == clean["free"] {
			t.Errorf("%s: the code has no breakpoints: %s", how, describe())
		}
		if how == "SIGKILL" {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
		} else if r := interrupt(t, c); r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		testenv.Await(t, func() bool { return fmt.Sprint(ask("b")) == fmt.Sprint(clean) }, describe)
	}
}
