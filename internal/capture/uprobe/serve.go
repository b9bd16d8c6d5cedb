package uprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/files/helper"
	"fulgur/internal/linux/capability"
)

// helperName is the name of the helper process.
const helperName = "fulgur-uprobes"

// operation is what the helper process shall do.
type operation uint32

const (
	opAttach operation = iota // with the descriptors of a program and a file
	opDetach                  // with the IDs of links in place of offsets
)

const (
	flagReturns = 1 << iota
	flagMulti
	flagUrgent
	flagNowhere // in this process instead of the given one
)

// request comes with the offsets, semaphores and cookies; see [Options].
type request struct {
	Op                           operation
	Flags                        uint32
	PID                          uint32
	Offsets, Semaphores, Cookies uint32
}

// answer comes with the text of the error, if any, and the descriptors of a new link.
type answer struct {
	ID    uint32 // of the new link
	Errno uint32 // 0 if the error is none of the kernel
}

const (
	maxOffsets = 1 << 20 // MAX_UPROBE_MULTI_CNT of kernel/trace/bpf_trace.c
	maxText    = 4096
)

func init() {
	helper.Serve(helperName, func(conn *net.UnixConn) error {
		runtime.LockOSThread() // for Urgently
		// A user may run the helper too. Capabilities of fulgur's file do not suffice to load
		// programs for uprobes, so the helper needs none of them.
		if err := capability.Drop(); err != nil {
			return err
		}
		s := server{conn: conn, links: map[uint32]io.Closer{}}
		err := s.serve(false)
		return errors.Join(err, closeAll(slices.Collect(maps.Values(s.links)))) // its user was killed
	})
}

// server is the main loop of the helper process.
type server struct {
	conn  *net.UnixConn
	links map[uint32]io.Closer
	last  uint32
}

// serve carries out requests. All of them are urgent after the first urgent one: while a window is
// open, the target is slow.
func (s *server) serve(urgent bool) error {
	for {
		if _, err := helper.Await(s.conn, helper.NoLimit); err != nil {
			return err
		}
		var r request
		body, fds, err := helper.Receive(s.conn, &r, len(lists{})*maxOffsets*8)
		if err != nil {
			return err
		}
		if r.Flags&flagUrgent != 0 && !urgent {
			return Urgently(func() error {
				if err := s.answer(r, body, fds); err != nil {
					return err
				}
				return s.serve(true)
			})
		}
		if err := s.answer(r, body, fds); err != nil {
			return err
		}
	}
}

// answer carries out a request.
func (s *server) answer(r request, body []byte, fds []int) error {
	lists, err := r.lists(body)
	if err != nil {
		helper.Close(fds)
		return err
	}
	var a answer
	var given []int
	if r.Op == opDetach {
		err = s.detach(lists[0])
	} else {
		a.ID, given, err = s.attach(r, lists, fds)
	}
	helper.Close(fds)
	defer helper.Close(given)
	var text string
	var errno unix.Errno
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist): // the library's error for ESRCH
		errno, text = unix.ESRCH, unix.ESRCH.Error()
	default:
		text = err.Error()[:min(len(err.Error()), maxText)]
		errors.As(err, &errno)
	}
	a.Errno = uint32(errno)
	return helper.Send(s.conn, a, []byte(text), given...)
}

// detach closes the links with some IDs.
func (s *server) detach(ids []uint64) error {
	var all []io.Closer
	for _, id := range ids {
		if l := s.links[uint32(id)]; l != nil {
			delete(s.links, uint32(id))
			all = append(all, l)
		}
	}
	return closeAll(all)
}

// maxClosing is the maximum number of links to close at the same time, each in a thread.
const maxClosing = 64

// closeAll closes links. It closes a single one in this thread, which can be urgent.
func closeAll(all []io.Closer) error {
	if len(all) == 1 {
		return all[0].Close()
	}
	var group sync.WaitGroup
	errs, slots := make([]error, len(all)), make(chan struct{}, maxClosing)
	for i, l := range all {
		slots <- struct{}{}
		group.Go(func() {
			errs[i] = l.Close()
			<-slots
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// attach attaches a program, and returns the ID of its link and copies of the descriptors that
// keep it attached.
func (s *server) attach(r request, lists lists, fds []int) (id uint32, given []int, err error) {
	l, err := attach(r, lists, fds)
	if err != nil {
		return 0, nil, err
	}
	if given, err = descriptors(l); err != nil {
		helper.Close(given)
		return 0, nil, errors.Join(err, l.Close())
	}
	s.last++
	s.links[s.last] = l
	return s.last, given, nil
}

// descriptors returns copies of the descriptors that keep a program attached.
func descriptors(l link.Link) (fds []int, err error) {
	if raw, ok := l.(interface{ FD() int }); ok {
		if fds, err = appendCopy(fds, raw.FD()); err != nil {
			return fds, err
		}
	}
	if event, ok := l.(link.PerfEvent); ok {
		f, err := event.PerfEvent()
		if err != nil {
			return fds, err
		}
		fds, err = appendCopy(fds, int(f.Fd()))
		return fds, errors.Join(err, f.Close())
	}
	return fds, nil
}

func appendCopy(fds []int, fd int) ([]int, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fds, os.NewSyscallError("fcntl", err)
	}
	return append(fds, fd), nil
}

// lists are the numbers that come with a request.
type lists [3][]uint64

// lists reads the numbers that come with a request.
func (r *request) lists(body []byte) (all lists, err error) {
	for i, n := range []uint32{r.Offsets, r.Semaphores, r.Cookies} {
		if n == 0 {
			continue
		}
		all[i] = make([]uint64, min(int(n), len(body)/8))
		size, err := binary.Decode(body, binary.NativeEndian, all[i])
		if err != nil || len(all[i]) < int(n) {
			return all, fmt.Errorf("%d offsets in %d bytes", n, len(body))
		}
		body = body[size:]
	}
	return all, nil
}

// attach attaches a program, whose descriptor is the first, to places in a file, whose
// descriptor is the second.
func attach(r request, lists lists, fds []int) (link.Link, error) {
	if len(lists[0]) == 0 {
		return nil, errors.New("no offset")
	}
	if len(fds) != 2 {
		return nil, os.NewSyscallError("recvmsg", unix.EMFILE) // the kernel has dropped the rest
	}
	own, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	program, err := ebpf.NewProgramFromFD(own)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	// The kernel follows this link to the open file, whatever happens to its path.
	file, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", fds[1]))
	if err != nil {
		return nil, err
	}
	if r.Flags&flagNowhere != 0 {
		r.PID = uint32(os.Getpid())
	}
	returns := r.Flags&flagReturns != 0
	if r.Flags&flagMulti != 0 {
		multi := file.UprobeMulti
		if returns {
			multi = file.UretprobeMulti
		}
		return multi(nil, program, &link.UprobeMultiOptions{Addresses: lists[0], RefCtrOffsets: lists[1], Cookies: lists[2], PID: r.PID})
	}
	one := link.UprobeOptions{Address: lists[0][0], PID: int(r.PID)}
	if len(lists[1]) > 0 {
		one.RefCtrOffset = lists[1][0]
	}
	if len(lists[2]) > 0 {
		one.Cookie = lists[2][0]
	}
	single := file.Uprobe
	if returns {
		single = file.Uretprobe
	}
	return single("probe", program, &one)
}
