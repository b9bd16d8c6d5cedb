package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// Every function of other allocators than the C library's counts once: also those of C++ and of
// jemalloc alone, with any way to free memory. Exceptions of the allocator reach the program.
func TestAllocators(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := testenv.Compile(t, "allocators", "g++", "-O1", "-fno-omit-frame-pointer", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "testdata/allocators.cc")
	for _, name := range []string{"libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LD_PRELOAD", testenv.File(t, testenv.Library(name)))
			pid, ask := serve(t, program)
			got, want := allocations(t, pid, ask, "r", "--rate", "1", "--live")
			if exits := strings.Contains(name, "mimalloc"); exits != (want["refused"] == 0) {
				t.Errorf("the program caught %d exceptions of the allocator", want["refused"])
			}
			delete(want, "refused")
			same(t, got, want, true)
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
			if err != nil || !strings.Contains(string(maps), name) {
				t.Errorf("the program does not use %s: %v", name, err)
			}
			if isJemalloc := strings.Contains(name, "jemalloc"); isJemalloc != (want["by_mallocx_objects"] > 0) {
				t.Errorf("the program made %d calls of jemalloc's own functions", want["by_mallocx_objects"])
			}
		})
	}
}

// Before Linux 5.15, malloc is measured in a program that samples its own allocations.
func TestAllocWithoutCookies(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	if hasCookies(t) {
		testenv.Unsupported(t, "the kernel has attach cookies")
	}
	byFunctions(t, compile(t, "sampler.c", "sampler", "-pthread"), "its own samples are not used: this needs Linux 5.15")
}

// byFunctions checks that fulgur alloc with flags measures malloc in the program, which samples its
// own allocations, and that the summary has the note.
func byFunctions(t *testing.T, program, note string, flags ...string) {
	t.Helper()
	pid, ask := serve(t, program)
	got, want, summary := summedAllocations(t, pid, ask, "r", append(flags, "--rate", "1")...)
	if want["by_small_objects"] != 0 || got["by_small_objects"] != 100 || got["by_large_objects"] != 100 {
		t.Errorf("got %v, want 100 calls of malloc by each function; the program's samples are %v", got, want)
	}
	if !strings.Contains(summary, note) {
		t.Errorf("the summary lacks %q: %s", note, summary)
	}
}

// A program that samples its own allocations, and reports them by the probes of otel_memory, is
// measured by these. Its calls of malloc do not count, even if another process makes fulgur
// measure malloc.
func TestAllocProbes(t *testing.T) {
	testenv.Root(t)
	needCookies(t)
	sampler, other := compile(t, "sampler.c", "sampler", "-pthread"), buildAlloc(t)
	for name, test := range map[string]struct {
		flags    []string
		other    bool
		replaced bool // by another file, after the start
	}{
		"allocated":     {},
		"live":          {flags: []string{"--live"}},
		"beside":        {flags: []string{"--live", "--rate", "1"}, other: true},
		"file replaced": {replaced: true},
	} {
		t.Run(name, func(t *testing.T) {
			program := sampler
			if test.replaced {
				program = duplicate(t, sampler, t.TempDir())
			}
			pid, ask := serve(t, program)
			if test.replaced {
				if err := os.Rename(duplicate(t, other, t.TempDir()), program); err != nil {
					t.Fatal(err)
				}
			}
			if test.other {
				test.flags = append(test.flags, "-p", beside(t, other))
			}
			got, want := allocations(t, pid, ask, "r", test.flags...)
			if want["by_small_objects"] == 0 || want["by_large_bytes"] == 0 {
				t.Fatalf("the program took no samples: %v", want)
			}
			if test.other {
				// malloc counted the first allocation, of 8 bytes and a header of 16. So the
				// sample of it, which stands for three, does not count.
				want["by_small_objects"] -= 3 - 1
				want["by_small_live_objects"] -= 3 - 1
				want["by_small_bytes"] -= 3*8 - (8 + 16)
				want["by_small_live_bytes"] -= 3*8 - (8 + 16)
			}
			for _, name := range []string{"by_fraction_objects", "by_fraction_live_objects"} {
				if strings.Contains(name, "live") && test.flags == nil {
					continue
				}
				// Each sample stands for two and a half allocations, rounded up or down.
				stat.Binomial(want[name], 0.5).Check(t, name+" above two for each sample", got[name]-2*want[name])
				want[name] = got[name]
			}
			same(t, got, want, test.flags != nil)
			testenv.Await(t, func() bool { s := ask("s"); return s["alloc"]+s["free"] == 0 }, func() string { return "the probes are still in use" })
		})
	}
	// Functions count all allocations before the first report, and probes all after it. Memory
	// that functions counted can be freed later.
	t.Run("taken over", func(t *testing.T) {
		pid, ask := serve(t, sampler)
		got, want, summary := summedAllocations(t, pid, ask, "t", "--live", "--rate", "1", "-p", beside(t, other))
		same(t, got, want, true)
		if !strings.Contains(summary, "1 allocation with impossible numbers") {
			t.Errorf("the summary lacks the sample with impossible numbers: %s", summary)
		}
	})
	t.Run("without probes", func(t *testing.T) {
		byFunctions(t, sampler, "", "--no-probes")
	})
}

// beside starts another program and returns its PID.
func beside(t *testing.T, program string) string {
	t.Helper()
	pid, _ := serve(t, program)
	return strconv.Itoa(pid)
}
