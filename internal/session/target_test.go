package session

import (
	"errors"
	"strings"
	"testing"

	"fulgur/internal/capture/target"
)

func TestCheckTarget(t *testing.T) {
	for path, want := range map[string]error{"/nonexistent": target.ErrNoCgroup, t.TempDir(): target.ErrNotCgroup} {
		err := CheckTarget(&target.Target{Scope: target.Cgroup, CgroupPath: path})
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "cgroup "+path) && !strings.HasPrefix(err.Error(), path) ||
			!strings.Contains(err.Error(), "/sys/fs/cgroup") {
			t.Errorf("%s: got error %q, want %q and the location of cgroups", path, err, want)
		}
	}
	if err := CheckTarget(&target.Target{Scope: target.Processes, PIDs: []int{1 << 30}}); !errors.Is(err, target.ErrNoTask) {
		t.Errorf("got error %v, want %v", err, target.ErrNoTask)
	}
	if err := CheckTarget(&target.Target{}); err != nil {
		t.Errorf("whole system: got error %v", err)
	}
}
