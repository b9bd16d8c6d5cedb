package e2e

import (
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// A breakpoint at a NOP does not change the result of a function that keeps data below the stack pointer. If the
// kernel would overwrite it, the place is refused.
func TestRedZone(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := testenv.Compile(t, "redzone", "gcc", "-O2", "-no-pie", "-Wall", "-Wextra", "-Werror", "testdata/redzone.c")
	places := []string{"usdt:" + program + ":fulgur:place"}
	for _, offset := range []string{"4", "5", "8", "10"} { // those of the NOP, and after it
		places = append(places, "uprobe:"+program+":keeps+"+offset)
	}
	measured := 0
	for _, place := range places {
		pid, ask := serve(t, program)
		c := command(t, "count", "-e", place, "-p", strconv.Itoa(pid))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		refused := !testenv.AwaitPolls(t, c.Process.Pid)
		if own := ask("r"); own["right"] != 2000 {
			t.Errorf("%s: %d of 2000 results are right", place, own["right"])
		}
		if refused {
			if r := finish(t, c); r.code != 2 {
				t.Errorf("%s: exit code %d, want 2: %s", place, r.code, r.stderr)
			}
			continue
		}
		if r := interrupt(t, c); r.code != 0 || !strings.Contains(r.stderr, "2000 hits") {
			t.Errorf("%s: got code %d and %q, want 2000 hits", place, r.code, r.stderr)
		}
		measured++
	}
	if measured == 0 {
		t.Error("no place was measured")
	}
}
