// Package looks finds where threads of a user's own processes wait, without BPF and without stopping them: /proc tells the
// system call, the kernel's function, and the program's registers that lead to the stack. The stack of a thread that waits
// does not change, so a copy of it is whole if the thread did not run meanwhile. A [Looker] checks that by a second look, as
// far as /proc tells. Whoever knows all switches of the thread can be sure: see [Look.From].
package looks

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
)

// Look is what was found of a thread that waited, between From and the time of its stamp, in ns of CLOCK_MONOTONIC. It is
// true of the whole wait if the thread did not run between the two.
type Look struct {
	perfevent.Stamp
	From     uint64
	PID, TID int
	// State is its state, as "S".
	State byte
	// Call is the number of its system call, [procfs.NoCall] if it is in none, or if Forbidden is set. Function is the function
	// of the kernel in which it waits, "" if unknown.
	Call     int
	Function string
	// User is the state of the program: the program counter, the stack pointer and a copy of the stack. Forbidden means that it
	// may not be read.
	User      perfevent.UserState
	Forbidden bool
}

// Size returns what the look takes, in bytes.
func (l *Look) Size() int { return 200 + len(l.User.Regs) + len(l.User.Stack) }

// stackCopy is the number of bytes of a stack to copy.
const stackCopy = 16 << 10

// Errors of a look at a thread.
var (
	// ErrRuns means that the thread runs, waits for a CPU, or has run during the look.
	ErrRuns = errors.New("the thread runs")
	// ErrGone means that there is no such thread any more.
	ErrGone = errors.New("there is no such thread")
)

// Looker looks at threads. It is not safe for concurrent use.
type Looker struct{ stack []byte }

// registers is the mask of the two registers that /proc tells, in perf's order: the stack pointer and the program counter.
var registers = map[string]uint64{"amd64": 1<<7 | 1<<8, "arm64": 1<<31 | 1<<32}[runtime.GOARCH]

// Look looks at a thread. The error is [ErrRuns], [ErrGone], or that of reading /proc.
func (l *Looker) Look(pid, tid int) (Look, error) {
	at := procfs.Thread(pid, tid)
	look := Look{From: monotonic.Now(), PID: pid, TID: tid, Call: procfs.NoCall}
	before, err := at.Sched()
	if err != nil {
		return look, gone(err)
	}
	stat, err := at.Stat()
	if err != nil {
		return look, gone(err)
	}
	if look.State = stat.State; look.State == 'R' || stat.Exited() {
		return look, ErrRuns
	}
	call, err := at.Syscall()
	switch {
	case errors.Is(err, fs.ErrPermission):
		look.Forbidden = true
	case err != nil:
		return look, gone(err)
	case call.Running:
		return look, ErrRuns
	default:
		look.Call = call.Number
	}
	if look.Function, err = at.Wchan(); err != nil && !errors.Is(err, fs.ErrPermission) {
		return look, gone(err)
	}
	if !look.Forbidden {
		look.User = l.copy(tid, call)
		if again, err := at.Syscall(); err != nil || again != call {
			return look, ErrRuns
		}
	}
	after, err := at.Sched()
	if err != nil {
		return look, gone(err)
	}
	if after != before {
		return look, ErrRuns
	}
	look.Time = monotonic.Now()
	return look, nil
}

// gone returns [ErrGone] for errors that mean that.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// copy returns the state of the program of a thread that waits in a system call.
func (l *Looker) copy(tid int, call procfs.Syscall) perfevent.UserState {
	if l.stack == nil {
		l.stack = make([]byte, stackCopy)
	}
	stack := tracing.Read(tid, call.SP, l.stack)
	if len(stack) == 0 { // a seccomp filter may refuse the system call, but not the file
		stack = readMemory(tid, call.SP, l.stack)
	}
	u := perfevent.UserState{ABI: perfevent.ABI64, Mask: registers, Full: len(stack) == stackCopy}
	u.Regs = binary.NativeEndian.AppendUint64(u.Regs, call.SP)
	u.Regs = binary.NativeEndian.AppendUint64(u.Regs, call.PC)
	u.Stack = append(u.Stack, stack...)
	return u
}

// readMemory reads memory of a thread's process into buf, and returns the part that could be read.
func readMemory(tid int, addr uint64, buf []byte) []byte {
	mem, err := os.Open(procfs.Path(tid, "mem"))
	if err != nil {
		return nil
	}
	defer mem.Close()
	n, _ := unix.Pread(int(mem.Fd()), buf, int64(addr))
	return buf[:max(n, 0)]
}
