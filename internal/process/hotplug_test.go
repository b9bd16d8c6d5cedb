package process

import (
	"os"
	osexec "os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
)

// The sideband listens again on a CPU that goes offline and comes back, even if it was offline only
// between two checks.
func TestSidebandHotplug(t *testing.T) {
	testenv.VM(t)
	runtime.LockOSThread() // and never unlocked: its affinity changes
	s := openSideband(t, 8)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	follow := func() {
		t.Helper()
		online, err := perfevent.OnlineCPUs()
		if err == nil {
			err = s.FollowCPUs(online)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// heard reports whether a fork on CPU 1 is reported.
	heard := func() (reported bool) {
		t.Helper()
		var cpu1 unix.CPUSet
		cpu1.Set(1)
		if err := unix.SchedSetaffinity(0, &cpu1); err != nil {
			t.Fatal(err)
		}
		if err := osexec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Drain(func(r perfevent.Record) {
			if fork, ok := r.(perfevent.Fork); ok && fork.PPID == os.Getpid() && fork.PID != fork.PPID {
				reported = true
			}
		}); err != nil {
			t.Fatal(err)
		}
		return reported
	}
	if !heard() {
		t.Fatal("no fork is reported at first")
	}
	testenv.SetOnline(t, false)
	follow()
	testenv.SetOnline(t, true)
	follow()
	if !heard() {
		t.Error("no fork is reported after CPU 1 came back")
	}
	testenv.SetOnline(t, false)
	testenv.SetOnline(t, true)
	testenv.Await(t, func() bool {
		follow()
		return heard()
	}, func() string { return "no fork is reported after CPU 1 was away for a moment" })
}
