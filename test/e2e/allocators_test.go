package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Every function of other allocators than the C library's counts once: also those of C++ and of
// jemalloc alone, with any way to free memory.
func TestAllocators(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := testenv.Compile(t, "allocators", "g++", "-O1", "-fno-omit-frame-pointer", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "testdata/allocators.cc")
	for _, name := range []string{"libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LD_PRELOAD", testenv.File(t, testenv.Library(name)))
			pid, ask := serve(t, program)
			got, want := allocations(t, pid, ask, "r", "--rate", "1", "--live")
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
