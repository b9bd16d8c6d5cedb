package uprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/files/helper"
	"fulgur/internal/files/safeopen"
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
	// Ending is closed when the user ends the measurement, after which requests get little more
	// time, or nil.
	Ending <-chan struct{}
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
	ending        <-chan struct{}
}

// Attach attaches a program to instructions of an executable file, for which [CheckFile] returns
// no error. Errors contain the errno of the kernel, ESRCH if the process has exited, or
// [ErrNoAnswer] if the kernel does not finish. A helper process attaches and detaches, since a
// thread with a pending SIGKILL cannot remove breakpoints: the kernel would leave them in the
// target's code if this process were killed at the wrong moment. The helper is not killed with
// it. Both hold the link, so the program stays attached until both have closed it or ended.
func Attach(file *safeopen.File, program *ebpf.Program, o Options) (_ *Link, err error) {
	if err := CheckFile(file); err != nil {
		return nil, err
	}
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
	l := &Link{request: r, body: body, program: -1, file: -1, ending: o.Ending}
	if l.program, err = unix.FcntlInt(uintptr(program.FD()), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		l.file, err = unix.FcntlInt(file.OS().Fd(), unix.F_DUPFD_CLOEXEC, 0)
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
// places, and so takes over breakpoints that the first one left.
func (l *Link) attach() error {
	err := l.tryAttach()
	left := errors.Is(err, errEnded)
	if left || errors.Is(err, errUnsent) {
		err = l.tryAttach()
	}
	if left && err != nil && !errors.Is(err, ErrNoAnswer) {
		err = errors.Join(err, l.removeLeft())
	}
	return err
}

func (l *Link) tryAttach() (err error) {
	if l.process, err = acquire(); err != nil {
		return err
	}
	if l.id, l.fds, err = l.process.ask(l.limit(), l.request, l.body, l.program, l.file); err != nil {
		err = errors.Join(err, l.process.release())
	}
	return err
}

// detach detaches the programs of links, all of the same helper process.
func detach(p *process, links []*Link) error {
	var body []byte
	limit := limit{answerTime, nil}
	for _, l := range links {
		helper.Close(l.fds) // first, so that the helper closes the last ones
		body = binary.NativeEndian.AppendUint64(body, uint64(l.id))
		limit.time += time.Duration(l.request.Offsets) * answerTimeEach
		limit.ending = l.ending
	}
	_, _, err := p.ask(limit, request{Op: opDetach, Offsets: uint32(len(links))}, body)
	if errors.Is(err, errUnsent) {
		err = nil // the helper had ended, so those were the last ones
	}
	for range links {
		err = errors.Join(err, p.release())
	}
	return err
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

// limit returns the limit of the time of a request for the link.
func (l *Link) limit() limit {
	return limit{answerTime + time.Duration(l.request.Offsets)*answerTimeEach, l.ending}
}

// Close detaches the program. When it returns without an error, the breakpoints are gone. After
// [ErrNoAnswer], the helper process removes them as soon as the kernel lets it.
func (l *Link) Close() error { return CloseAll([]*Link{l}) }

// CloseAll closes links at the same time, since the kernel waits some 60 ms for each.
func CloseAll(links []*Link) error {
	byProcess := map[*process][]*Link{}
	for _, l := range links {
		byProcess[l.process] = append(byProcess[l.process], l)
	}
	var errs []error
	for p, links := range byProcess {
		err := detach(p, links)
		if errors.Is(err, errEnded) { // it was killed while it detached
			err = nil
			for _, l := range links {
				err = errors.Join(err, l.removeLeft())
			}
		}
		errs = append(errs, err)
	}
	for _, l := range links {
		l.forget()
	}
	return errors.Join(errs...)
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
		err = detach(nowhere.process, []*Link{&nowhere})
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
	// failed is the error of the first request that got no answer; of mu.
	failed error
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
	if err := p.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // it has failed
}

// ErrNoAnswer means that the kernel did not attach or detach a program in time, for example since
// the file's file system does not respond.
var ErrNoAnswer = errors.New("the kernel does not finish; a file system may not respond")

// If the helper process was killed, errUnsent means that it ended before it got a request, and
// errEnded that it ended before it answered.
var (
	errUnsent = errors.New("the process that attaches uprobes had ended")
	errEnded  = errors.New("the process that attaches uprobes has ended without an answer")
)

// Limits of waits for a helper process.
const (
	// answerTime limits the wait for an answer, with answerTimeEach for each offset.
	answerTime     = 20 * time.Second
	answerTimeEach = time.Millisecond
	// endingTime limits it once the user ends the measurement.
	endingTime = 5 * time.Second
	// endTime limits the wait for a process that was killed.
	endTime = 5 * time.Second
	// pause is the longest part of a wait that counts at once: if the machine stalls, the helper
	// process makes no progress either.
	pause = 50 * time.Millisecond
)

// limit limits the time of a request.
type limit struct {
	time   time.Duration
	ending <-chan struct{} // see [Options.Ending]
}

// await waits for an answer on conn.
func (l limit) await(conn *net.UnixConn) error {
	for left := l.time; left > 0; left -= pause {
		if ready, err := helper.Await(conn, pause); ready || err != nil {
			return err
		}
		select {
		case <-l.ending:
			left = min(left, endingTime)
			l.ending = nil
		default:
		}
	}
	return ErrNoAnswer
}

// ask sends a request and waits for its answer, in a system call: Go's scheduler may wake this
// thread later.
func (p *process) ask(l limit, r request, body []byte, given ...int) (id uint32, fds []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return 0, nil, p.failed
	}
	a, text, fds, err := p.exchange(l, r, body, given)
	if err != nil {
		return 0, nil, p.fail(err)
	}
	if len(text) > 0 {
		helper.Close(fds)
		return 0, nil, &remoteError{string(text), unix.Errno(a.Errno)}
	}
	return a.ID, fds, nil
}

// exchange sends a request and receives the answer, with its text. An error is about the process.
func (p *process) exchange(l limit, r request, body []byte, given []int) (a answer, text []byte, fds []int, err error) {
	problem := errUnsent
	_ = p.conn.SetDeadline(time.Now().Add(l.time)) // an error follows
	if err = helper.Send(p.conn, r, body, given...); err == nil {
		problem = errEnded
		if err = l.await(p.conn); err == nil {
			_ = p.conn.SetDeadline(time.Now().Add(answerTime)) // likewise
			text, fds, err = helper.Receive(p.conn, &a, maxText)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrNoAnswer), errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrNoAnswer
	default:
		err = fmt.Errorf("%w: %w", problem, err)
	}
	return a, text, fds, err
}

// fail gives the process up after an error, which it returns. The next user starts another one.
func (p *process) fail(err error) error {
	shared.mu.Lock()
	if shared.process == p {
		shared.process = nil
	}
	shared.mu.Unlock()
	if errors.Is(err, ErrNoAnswer) {
		// It may be in an uninterruptible wait. Then it detaches its programs and ends. Killed
		// instead, it would leave its breakpoints.
		_ = p.conn.Close() // nothing was written
		p.failed = err
		return err
	}
	select { // it was killed, and may still remove its breakpoints
	case <-p.ended:
	case <-time.After(endTime):
	}
	p.failed = errUnsent
	return err
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
