package target

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Closing a cgroup twice does not close a file that reuses its descriptor.
func TestCloseCgroupTwice(t *testing.T) {
	c, err := OpenCgroup(Target{Scope: Cgroup, CgroupPath: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	at := c.FD
	c.Close()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	other, err := unix.FcntlInt(uintptr(p[0]), unix.F_DUPFD_CLOEXEC, at)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, fd := range []int{p[0], p[1], other} {
		if err := unix.Close(fd); err != nil {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}
