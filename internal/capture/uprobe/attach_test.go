package uprobe

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// If the helper process was killed, the next program is attached by another one.
func TestAttachAfterKill(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	memlock.Lift()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	offset, err := offsetOf(bodies[emulated])
	if err != nil {
		t.Fatal(err)
	}
	release, err := Keep()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	killHelper(t)
	l, err := Attach(self, program, Options{Offsets: []uint64{offset}, PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	samples[emulated]()
	second := helperPID(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if kept := helperPID(t); kept != second {
		t.Errorf("process %d is kept, want %d", kept, second)
	}
}

// killHelper kills the helper process of this process, and waits until it has ended.
func killHelper(t *testing.T) {
	t.Helper()
	pid := helperPID(t)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// helperPID returns the helper process of this process.
func helperPID(t *testing.T) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(line), helperName) {
			continue // it has ended, or is another program
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if stat, err := procfs.Process(pid).Stat(); err == nil && stat.Parent == os.Getpid() {
			return pid
		}
	}
	t.Fatal("there is no helper process")
	return 0
}
