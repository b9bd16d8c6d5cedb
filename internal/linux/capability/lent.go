package capability

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// measuring holds the capabilities that stay in effect while fulgur measures. None of
// them helps to open a path. All others are withheld, see [With].
var measuring = SetOf(BPF, Perfmon, Syslog, SysAdmin, IPCLock, SysResource)

// withheld holds the capabilities that are permitted but not effective. Withhold sets it
// once, before anything else runs.
var withheld Set

// isLent is set if the executable file lent capabilities. Withhold sets it once, too.
var isLent bool

// Lent reports whether the executable file lent this process its capabilities, so that it has no
// others.
func Lent() bool { return isLent }

// Withhold removes from the effective set of all threads the capabilities that open files
// which the user may not open. [With] restores them where fulgur needs them. Call
// Withhold before opening anything.
//
// It has no effect for root or for a user with ambient capabilities. Ambient capabilities
// belong to the user, whereas an executable file lends its capabilities to everyone who
// runs it.
func Withhold() error {
	now, err := lent()
	if err != nil || now.permitted == 0 {
		return err
	}
	isLent = true
	keep := now
	keep.effective = now.permitted & measuring
	if err := keep.setEverywhere(); err != nil {
		return fmt.Errorf("withhold capabilities: %w", err)
	}
	withheld = now.permitted &^ measuring
	return nil
}

// Drop permanently gives up, on all threads, the capabilities that the executable file
// lent to this process, which is then like any other process of its user. Like
// [Withhold], it has no effect for root.
//
// The bounding set stays, because only CAP_SETPCAP could change it. So does the right to
// gain privileges by execve(2), which a browser may need.
func Drop() error {
	now, err := lent()
	if err != nil || now.permitted == 0 {
		return err
	}
	withheld = 0
	if err := (sets{}).setEverywhere(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	// The kernel makes root the owner of /proc/self of a program with file capabilities.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", os.NewSyscallError("prctl", err))
	}
	return nil
}

// With calls fn with the capabilities of set in effect that [Withhold] withheld, on this
// thread only. fn must not open a path that the user or another process chose.
func With[T any](set Set, fn func() (T, error)) (T, error) {
	if set&withheld == 0 {
		return fn()
	}
	// The runtime does not start threads from a locked one, so no other thread inherits
	// these capabilities.
	runtime.LockOSThread()
	before, err := current()
	if err == nil {
		raised := before
		raised.effective |= set & withheld
		err = raised.set()
	}
	if err != nil {
		runtime.UnlockOSThread()
		var none T
		return none, fmt.Errorf("raise capabilities: %w", err)
	}
	defer func() {
		if before.set() == nil {
			runtime.UnlockOSThread()
		} // otherwise the thread ends with the goroutine
	}()
	return fn()
}

// Withheld returns the capabilities that [Withhold] removed from the effective set.
func Withheld() Set { return withheld }

// Available reports whether c is in effect or [With] can put it into effect.
func Available(c Capability) bool {
	now, err := current()
	return err == nil && (now.effective | withheld).Has(c)
}

// errSetID rejects an executable file that lends more than capabilities.
var errSetID = errors.New("fulgur does not run set-user-ID or set-group-ID, which would lend all rights of that user or group to everyone: " +
	"take the mode from its file, and see fulgur doctor for the capabilities that it needs")

// lent returns the capabilities of this thread if its executable file lent them, or none.
func lent() (sets, error) {
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return sets{}, errSetID
	}
	if os.Geteuid() == 0 {
		return sets{}, nil
	}
	now, err := current()
	if err != nil || now.permitted == 0 {
		return sets{}, err
	}
	for c := range Capability(64) {
		// A program with file capabilities starts without ambient ones. EINVAL means that
		// the kernel does not know the capability.
		is, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, uintptr(c), 0, 0)
		if err == nil && is == 1 {
			return sets{}, nil
		}
	}
	return now, nil
}

// sets holds the capability sets of a thread, see capabilities(7).
type sets struct{ effective, permitted, inheritable Set }

// header returns the header of capget(2) and capset(2) for the calling thread.
func header() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

// current returns the sets of this thread.
func current() (sets, error) {
	var halves [2]unix.CapUserData
	if err := unix.Capget(header(), &halves[0]); err != nil {
		return sets{}, os.NewSyscallError("capget", err)
	}
	join := func(low, high uint32) Set { return Set(high)<<32 | Set(low) }
	return sets{
		effective:   join(halves[0].Effective, halves[1].Effective),
		permitted:   join(halves[0].Permitted, halves[1].Permitted),
		inheritable: join(halves[0].Inheritable, halves[1].Inheritable),
	}, nil
}

// halves returns s in the form of capset(2).
func (s sets) halves() *[2]unix.CapUserData {
	low := func(c Set) uint32 { return uint32(c) }
	high := func(c Set) uint32 { return uint32(c >> 32) }
	return &[2]unix.CapUserData{
		{Effective: low(s.effective), Permitted: low(s.permitted), Inheritable: low(s.inheritable)},
		{Effective: high(s.effective), Permitted: high(s.permitted), Inheritable: high(s.inheritable)},
	}
}

// set applies s to this thread.
func (s sets) set() error {
	return os.NewSyscallError("capset", unix.Capset(header(), &s.halves()[0]))
}

// setEverywhere applies s to all threads.
func (s sets) setEverywhere() error {
	h, d := header(), s.halves()
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(d)), 0)
	runtime.KeepAlive(h)
	runtime.KeepAlive(d)
	if errno == syscall.ENOTSUP {
		return errors.New("this build of fulgur uses cgo: build it with CGO_ENABLED=0")
	}
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}
