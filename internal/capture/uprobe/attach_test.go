package uprobe

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// attacher returns a function that attaches a program to an instruction of this process.
func attacher(t *testing.T) func(ending <-chan struct{}) (*Link, error) {
	t.Helper()
	testenv.Root(t)
	memlock.Lift()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	self, err := safeopen.OpenTrusted("/proc/self/exe", safeopen.AsUser, safeopen.Regular)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = self.Close() })
	offset, err := offsetOf(bodies[emulated])
	if err != nil {
		t.Fatal(err)
	}
	return func(ending <-chan struct{}) (*Link, error) {
		return Attach(self, program, Options{Offsets: []uint64{offset}, PID: os.Getpid(), Ending: ending})
	}
}

// codeReader returns a function that reads that instruction from memory.
func codeReader(t *testing.T) func() []byte {
	t.Helper()
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	return func() []byte {
		b := make([]byte, 4)
		if _, err := memory.ReadAt(b, int64(bodies[emulated])); err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// If the helper process was killed, the next program is attached by another one.
func TestAttachAfterKill(t *testing.T) {
	testenv.EveryKernel(t)
	attach := attacher(t)
	release, err := Keep()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	killHelper(t)
	l, err := attach(nil)
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

// Many links are closed at the same time, also if the helper process is killed meanwhile. Then no
// breakpoint is left.
func TestCloseAll(t *testing.T) {
	testenv.EveryKernel(t)
	attach := attacher(t)
	code := codeReader(t)
	clean := code()
	for name, kill := range map[string]bool{"together": false, "helper killed": true} {
		t.Run(name, func(t *testing.T) {
			release, err := Keep()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = release() }()
			links := make([]*Link, 10)
			for i := range links {
				if links[i], err = attach(nil); err != nil {
					t.Fatal(err)
				}
			}
			if bytes.Equal(code(), clean) {
				t.Fatal("there is no breakpoint")
			}
			if kill {
				killDuring(t, func() error { return CloseAll(links) })
			} else if err := CloseAll(links); err != nil {
				t.Fatal(err)
			}
			if got := code(); !bytes.Equal(got, clean) {
				t.Errorf("got the code % x, want % x", got, clean)
			}
			samples[emulated]()
		})
	}
}

// If the helper process is killed before it has carried out a request, another one does. It also
// removes a breakpoint that the first one left.
func TestKillDuringRequest(t *testing.T) {
	testenv.EveryKernel(t)
	attach := attacher(t)
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	code := codeReader(t)
	clean := code()
	release, err := Keep()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	var l *Link
	killDuring(t, func() error {
		l, err = attach(nil)
		return err
	})
	probed := code()
	if bytes.Equal(probed, clean) {
		t.Error("attached: there is no breakpoint")
	}
	samples[emulated]()
	killDuring(t, func() error {
		if err := detach(l.process, []*Link{l}); !errors.Is(err, errEnded) {
			return fmt.Errorf("got error %w, want one about the helper process", err)
		}
		return nil
	})
	// Leave a breakpoint, as the helper process may. Linux can refuse to write to code through /proc.
	protect(t, bodies[emulated], unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC)
	if _, err := memory.WriteAt(probed, int64(bodies[emulated])); err != nil {
		t.Fatal(err)
	}
	protect(t, bodies[emulated], unix.PROT_READ|unix.PROT_EXEC)
	// The process to attach in may have exited: here it cannot exist.
	l.request.PID = math.MaxInt32
	if err := l.removeLeft(); err != nil {
		t.Fatal(err)
	}
	l.forget()
	if got := code(); !bytes.Equal(got, clean) {
		t.Errorf("detached: the code is %x, want %x", got, clean)
	}
}

// A helper process that does not answer is not waited for. It ends once it can, without leaving
// a breakpoint, and the next program is attached by another one.
func TestNoAnswer(t *testing.T) {
	attach := attacher(t)
	code := codeReader(t)
	clean := code()
	ending := make(chan struct{})
	close(ending)
	for name, during := range map[string]func(l *Link) error{
		"attach": func(*Link) error {
			l, err := attach(ending)
			if err == nil {
				err = errors.Join(errors.New("attached"), l.Close())
			}
			return err
		},
		"detach": func(l *Link) error { return l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := attach(ending)
			if err != nil {
				t.Fatal(err)
			}
			defer l.forget()
			pid := helperPID(t)
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			stopHelper(t, pid)
			if err := during(l); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("got error %v, want %v", err, ErrNoAnswer)
			}
			if err := l.Close(); name == "attach" && !errors.Is(err, ErrNoAnswer) {
				t.Errorf("another link of the process: got error %v, want %v", err, ErrNoAnswer)
			}
			another, err := attach(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := another.Close(); err != nil {
				t.Error(err)
			}
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, fd)
			if got := code(); !bytes.Equal(got, clean) {
				t.Errorf("the code is %x, want %x", got, clean)
			}
		})
	}
}

// Files on FUSE are refused.
func TestRemote(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	path, stop := fusetest.Mount(t, fusetest.File(t, "program"))
	file, err := safeopen.OpenTrusted(path, safeopen.AsUser, safeopen.Regular)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stop()
	if l, err := Attach(file, nil, Options{Offsets: []uint64{0}}); l != nil || !errors.Is(err, errRemote) {
		t.Errorf("got error %v, want %v", err, errRemote)
	}
}

// protect sets the protection of the pages of an instruction.
func protect(t *testing.T, at uintptr, protection uintptr) {
	t.Helper()
	page := uintptr(os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MPROTECT, at&^(page-1), 2*page, protection); errno != 0 {
		t.Fatal(errno)
	}
}

// killDuring kills the helper process after it got a request, which it does not read.
func killDuring(t *testing.T, request func() error) {
	t.Helper()
	pid := helperPID(t)
	stopHelper(t, pid)
	shared.mu.Lock()
	conn := shared.process.conn
	shared.mu.Unlock()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- request() }()
	testenv.Await(t, func() bool {
		unread := 0
		if e := raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		return unread > 0
	}, func() string { return "no request" })
	kill(t, pid)
	if err := testenv.Receive(t, done, "the request does not end"); err != nil {
		t.Fatal(err)
	}
}

// stopHelper stops the helper process.
func stopHelper(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, func() bool { // each of its threads may be the one that reads
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("no threads of the helper process: %v", err)
		}
		return !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path + "/stat")
			return err == nil && !bytes.Contains(stat, []byte(") T ")) // otherwise it has ended
		})
	}, func() string { return "the helper process has not stopped" })
}

// killHelper kills the helper process of this process, and waits until it has ended.
func killHelper(t *testing.T) {
	t.Helper()
	kill(t, helperPID(t))
}

// kill kills a process, and waits until it has ended.
func kill(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, fd)
}

// awaitEnd waits until the process of a pidfd has ended.
func awaitEnd(t *testing.T, fd int) {
	t.Helper()
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// helperPID returns the helper process of this process, after that of an earlier test has ended.
func helperPID(t *testing.T) int {
	t.Helper()
	var all []int
	testenv.Await(t, func() bool {
		all = helperPIDs(t)
		return len(all) == 1
	}, func() string { return fmt.Sprintf("got helper processes %v, want one", all) })
	return all[0]
}

func helperPIDs(t *testing.T) (all []int) {
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
			all = append(all, pid)
		}
	}
	return all
}
