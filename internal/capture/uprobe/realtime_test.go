package uprobe

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Afterwards, the thread has the policy and the nice value that it had before.
func TestUrgently(t *testing.T) {
	testenv.AnyKernel(t)
	testenv.Root(t)
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 7); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	err := Urgently(func() error {
		if a, err := unix.SchedGetAttr(0, 0); err != nil || a.Policy != unix.SCHED_FIFO {
			testenv.Unsupported(t, "SCHED_FIFO is refused: %+v, %v", a, err)
		}
		return failed
	})
	if err == nil || err.Error() != failed.Error() {
		t.Errorf("got error %v, want %v alone", err, failed)
	}
	if a, err := unix.SchedGetAttr(0, 0); err != nil || a.Policy != unix.SCHED_NORMAL || a.Nice != 7 {
		t.Errorf("afterwards: got %+v, %v, want SCHED_NORMAL with nice value 7", a, err)
	}
}
