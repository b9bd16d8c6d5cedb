package uprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/helper"
)

// Options describe where to attach a program.
type Options struct {
	// Offsets are the file offsets of instructions. Semaphores are the file offsets of their
	// reference counters, or nil; Cookies are what the program reads, or nil.
	Offsets, Semaphores, Cookies []uint64
	// PID is the process to attach in, 0 for all.
	PID int
	// Returns attaches to the returns of functions instead of the instructions.
	Returns bool
	// Multi uses one uprobe_multi link, for a program of that type. Otherwise there is one
	// perf event, for one offset.
	Multi bool
	// Urgent prevents other threads from interrupting the attaching and detaching, since
	// they hold the lock of the target's address space.
	Urgent bool
}

// Link is an attached program.
type Link struct {
	process *process
	id      uint32
	// fds keep the program attached if the helper process is killed.
	fds []int

	// What was attached, to attach it again.
	request       request
	body          []byte
	program, file int // descriptors of its own
}

// Attach attaches a program to instructions of an executable file. Errors contain the errno of
// the kernel, ESRCH if the process has exited. A helper process attaches and detaches, since a
// thread with a pending SIGKILL cannot remove breakpoints: the kernel would leave them in the
// target's code if this process were killed at the wrong moment. The helper is not killed with
// it. Both hold the link, so the program stays attached until both have closed it or ended.
func Attach(file *os.File, program *ebpf.Program, o Options) (_ *Link, err error) {
	r := request{Op: opAttach, PID: uint32(o.PID), Offsets: uint32(len(o.Offsets)), Semaphores: uint32(len(o.Semaphores)), Cookies: uint32(len(o.Cookies))}
	for flag, set := range map[uint32]bool{flagReturns: o.Returns, flagMulti: o.Multi, flagUrgent: o.Urgent} {
		if set {
			r.Flags |= flag
		}
	}
	var body []byte
	for _, list := range [][]uint64{o.Offsets, o.Semaphores, o.Cookies} {
		for _, n := range list {
			body = binary.NativeEndian.AppendUint64(body, n)
		}
	}
	l := &Link{request: r, body: body, program: -1, file: -1}
	if l.program, err = unix.FcntlInt(uintptr(program.FD()), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		l.file, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		err = os.NewSyscallError("fcntl", err)
	} else {
		err = l.attach()
	}
	if err != nil {
		l.forget()
		return nil, err
	}
	return l, nil
}

// attach attaches the program. If the helper process was killed, another one attaches at the same
// places, and so adopts breakpoints that the first one left.
func (l *Link) attach() error {
	err := l.tryAttach()
	left := errors.Is(err, errEnded)
	if left || errors.Is(err, errUnsent) {
		err = l.tryAttach()
	}
	if left && err != nil {
		err = errors.Join(err, l.removeLeft())
	}
	return err
}

func (l *Link) tryAttach() (err error) {
	if l.process, err = acquire(); err != nil {
		return err
	}
	if l.id, l.fds, err = l.process.ask(l.request, l.body, l.program, l.file); err != nil {
		err = errors.Join(err, l.process.release())
	}
	return err
}

// detach detaches the program.
func (l *Link) detach() error {
	helper.Close(l.fds) // first, so that the helper closes the last one
	_, _, err := l.process.ask(request{Op: opDetach, ID: l.id}, nil)
	if errors.Is(err, errUnsent) {
		err = nil // the helper had ended, so that was the last one
	}
	return errors.Join(err, l.process.release())
}

// forget closes the descriptors of what was attached.
func (l *Link) forget() {
	for _, fd := range []*int{&l.program, &l.file} {
		if *fd >= 0 {
			_ = unix.Close(*fd) // nothing was written
			*fd = -1
		}
	}
}

// Close detaches the program. When it returns without an error, the breakpoints are gone.
func (l *Link) Close() error {
	defer l.forget()
	err := l.detach()
	if errors.Is(err, errEnded) { // it was killed while it detached
		err = l.removeLeft()
	}
	return err
}

// removeLeft removes breakpoints that a helper process left. It attaches at the same places in the
// new helper process, and detaches: then the kernel looks for breakpoints in all processes. The
// process to attach in may have exited, but not its children, which inherit breakpoints.
func (l *Link) removeLeft() error {
	nowhere := *l
	nowhere.request.Flags |= flagNowhere
	err := nowhere.tryAttach()
	if errors.Is(err, errUnsent) {
		err = nowhere.tryAttach()
	}
	if err == nil {
		err = nowhere.detach()
	}
	if err != nil {
		err = fmt.Errorf("remove breakpoints, which may stay in programs until these exit: %w", err)
	}
	return err
}

// Keep keeps a helper process until release is called, between one [Attach] and the next.
func Keep() (release func() error, err error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if err := start(); err != nil {
		return nil, err
	}
	shared.keepers++
	return func() error {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.keepers--
		if shared.process == nil {
			return nil // it was killed
		}
		return shared.process.endUnused()
	}, nil
}

// shared is the helper process in use.
var shared struct {
	mu      sync.Mutex
	process *process // or nil
	keepers int      // calls of [Keep] that were not released
}

// process is a helper process.
type process struct {
	mu    sync.Mutex // one request at a time
	conn  *net.UnixConn
	ended <-chan struct{}
	users int // requests and links; of shared.mu
}

// start starts the shared helper process if there is none. shared.mu must be locked.
func start() error {
	if shared.process != nil {
		return nil
	}
	conn, ended, err := helper.Start(helperName)
	if err != nil {
		return fmt.Errorf("start a process to attach uprobes: %w", err)
	}
	shared.process = &process{conn: conn, ended: ended}
	return nil
}

// acquire returns the shared helper process to a new user.
func acquire() (*process, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if err := start(); err != nil {
		return nil, err
	}
	shared.process.users++
	return shared.process, nil
}

// release ends the process after its last user.
func (p *process) release() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	p.users--
	return p.endUnused()
}

// endUnused ends the process if nothing uses or keeps it. shared.mu must be locked.
func (p *process) endUnused() error {
	current := shared.process == p
	if p.users > 0 || current && shared.keepers > 0 {
		return nil
	}
	if current {
		shared.process = nil
	}
	return p.conn.Close()
}

// If the helper process was killed, errUnsent means that it ended before it got a request, and
// errEnded that it ended before it answered.
var (
	errUnsent = errors.New("the process that attaches uprobes had ended")
	errEnded  = errors.New("the process that attaches uprobes has ended without an answer")
)

// endTime limits the wait for a helper process that was killed.
const endTime = 5 * time.Second

// ask sends a request and waits for its answer, in a system call: Go's scheduler may wake this
// thread later.
func (p *process) ask(r request, body []byte, given ...int) (id uint32, fds []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a answer
	problem := errUnsent
	if err = helper.Send(p.conn, r, body, given...); err == nil {
		problem = errEnded
		if err = helper.Await(p.conn); err == nil {
			fds, err = helper.Receive(p.conn, &a)
		}
	}
	text := make([]byte, min(a.Size, maxText))
	if err == nil {
		_, err = io.ReadFull(p.conn, text)
	}
	if err != nil {
		helper.Close(fds)
		shared.mu.Lock()
		if shared.process == p {
			shared.process = nil // the next user starts another one
		}
		shared.mu.Unlock()
		select { // it may still remove its breakpoints
		case <-p.ended:
		case <-time.After(endTime):
		}
		return 0, nil, fmt.Errorf("%w: %w", problem, err)
	}
	if len(text) > 0 {
		helper.Close(fds)
		return 0, nil, &remoteError{string(text), unix.Errno(a.Errno)}
	}
	return a.ID, fds, nil
}

// remoteError is an error of the helper process.
type remoteError struct {
	text  string
	errno unix.Errno // 0 if it is another error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}
