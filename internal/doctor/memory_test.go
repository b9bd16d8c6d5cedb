package doctor

import (
	"errors"
	"strings"
	"testing"
)

// A run stops before it begins if the limit is below its need, and names both.
func TestPreflightMemory(t *testing.T) {
	little := machine("a cgroup with little memory")
	var failed *Error
	_, err := Preflight(little, Locks)
	if want := "fulgur locks needs 112 MiB of memory, but /sys/fs/cgroup/a/memory.max limits memory to 70 MiB: raise"; !errors.As(err, &failed) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	for c, f := range map[Command]*Facts{Profile: little, Locks: machine("a cgroup with enough memory"), Record: machine("root")} {
		if _, err := Preflight(f, c); err != nil {
			t.Errorf("%s with a limit of %d bytes: got %v", c, f.Memory.Bytes, err)
		}
	}
}
