package privilege

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// MissingCapabilityError means that the process lacks capabilities.
type MissingCapabilityError struct {
	// Missing are the capabilities that are wanted and not in effect.
	Missing []Capability
	// Doing is what they are needed for: "load BPF programs".
	Doing string
}

// Error implements error.
func (e *MissingCapabilityError) Error() string {
	return fmt.Sprintf("%s needs %s: %s", e.Doing, names(e.Missing), remedy(e.Missing))
}

// Why a machine cannot be profiled whatever the capabilities.
var (
	// ErrLockdown means that the kernel is locked down.
	ErrLockdown = errors.New("the kernel is locked down in confidentiality mode, which keeps BPF programs from reading its memory: boot with lockdown=integrity, or turn Secure Boot's lockdown off")
	// ErrNoBTF means that the kernel does not describe its types.
	ErrNoBTF = errors.New("the kernel has no type information, /sys/kernel/btf/vmlinux: use one built with CONFIG_DEBUG_INFO_BTF=y")
	// ErrUserNamespace means that our capabilities hold in a user namespace
	// and not on the machine.
	ErrUserNamespace = errors.New("this is a user namespace (a rootless container?), whose capabilities do not hold for the machine: run fulgur outside of it")
	// ErrPIDNamespace means that our process IDs are not those that the
	// kernel's side of a profiler sees: they would name other processes.
	ErrPIDNamespace = errors.New("this is a pid namespace (a container?), in which process IDs are not the machine's: run fulgur outside of it, or start the container with the machine's: docker run --pid=host --privileged")
	// ErrForeignProc means that /proc does not show our pid namespace.
	ErrForeignProc = errors.New("/proc is not mounted or shows another pid namespace, not the machine's processes: sudo mount -t proc none /proc")
)

// Check reports what keeps a process in state s from profiling at all, before
// anything is tried: [ErrUserNamespace], [ErrPIDNamespace], [ErrForeignProc], a
// [*MissingCapabilityError], [ErrLockdown], or if nothing else [ErrNoBTF].
func (s State) Check() error {
	if s.UserNamespace {
		return ErrUserNamespace
	}
	if s.PIDNamespace {
		return ErrPIDNamespace
	}
	if s.ForeignProc {
		return ErrForeignProc
	}
	if missing := s.missing(BPF, Perfmon); len(missing) > 0 {
		return &MissingCapabilityError{Missing: missing, Doing: "profiling"}
	}
	if s.Lockdown == LockdownConfidentiality {
		return ErrLockdown
	}
	if !s.BTF {
		return ErrNoBTF
	}
	return nil
}

// missing returns those of caps that are not in effect, by the names under
// which this kernel knows them.
func (s State) missing(caps ...Capability) []Capability {
	var missing []Capability
	for _, c := range caps {
		split := c == BPF || c == Perfmon || c == CheckpointRestore
		if s.Effective.Has(c) || split && s.Effective.Has(SysAdmin) {
			continue // CAP_SYS_ADMIN stands for what was split from it
		}
		if c > s.Last {
			c = SysAdmin
		}
		if !slices.Contains(missing, c) {
			missing = append(missing, c)
		}
	}
	return missing
}

// Explain returns err with, if it is a refusal (EPERM or EACCES), what is
// missing for it and the remedy. An error of another kind is only wrapped
// with what we were doing: "load BPF programs". The capabilities needed are
// those of bpf() and perf_event_open() unless others are given. The result
// wraps err; that of nil is nil.
//
// It exists because a refusal by itself misleads: that of bpf() looks like a
// limit on locked memory, which was one of its causes before Linux 5.11.
func Explain(err error, doing string, needed ...Capability) error {
	if err == nil {
		return nil
	}
	s, readErr := Read()
	if readErr != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return s.explain(err, doing, needed...)
}

func (s State) explain(err error, doing string, needed ...Capability) error {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if len(needed) == 0 {
		needed = []Capability{BPF, Perfmon}
	}
	cause := s.cause(doing, needed)
	if cause == nil {
		return fmt.Errorf("%s: refused although %s is in effect: a security module (SELinux, AppArmor) may forbid it, see dmesg: %w",
			doing, names(needed), err)
	}
	return &refusal{cause: cause, err: err}
}

// cause guesses why a request was refused, from the surest reason to the
// vaguest; nil if none is known.
func (s State) cause(doing string, needed []Capability) error {
	if s.UserNamespace {
		return fmt.Errorf("%s: %w", doing, ErrUserNamespace)
	}
	if missing := s.missing(needed...); len(missing) > 0 {
		return &MissingCapabilityError{Missing: missing, Doing: doing}
	}
	if s.Lockdown == LockdownConfidentiality {
		return fmt.Errorf("%s: %w", doing, ErrLockdown)
	}
	if s.Paranoid > 2 && !s.Effective.Has(SysAdmin) && slices.Contains(needed, Perfmon) {
		return fmt.Errorf("%s: sysctl kernel.perf_event_paranoid is %d, and above 2 the kernels of Debian and Ubuntu demand CAP_SYS_ADMIN: sudo sysctl kernel.perf_event_paranoid=2, or run fulgur with sudo", doing, s.Paranoid)
	}
	if s.Seccomp {
		return fmt.Errorf("%s: a seccomp filter (a container's?) forbids it: allow bpf and perf_event_open there, or run fulgur outside", doing)
	}
	return nil
}

// refusal shows its cause alone, since the kernel's words say less, and wraps
// both.
type refusal struct{ cause, err error }

func (r *refusal) Error() string   { return r.cause.Error() }
func (r *refusal) Unwrap() []error { return []error{r.cause, r.err} }

// Warnings returns, a line each, what will be missing from a profile for lack
// of privileges that are not indispensable, and how to get them.
func (s State) Warnings() []string {
	optional := []struct {
		needed Capability
		lost   string
	}{
		{SysPtrace, "functions of other users' and of more privileged processes may have no names: their mappings and the files of their containers stay hidden"},
		{CheckpointRestore, "functions of files that were deleted or replaced while a process maps them have no names"},
		{DACReadSearch, "functions of files that this user may not read have no names"},
	}
	var missing []Capability
	var warnings []string
	for _, o := range optional {
		if m := s.missing(o.needed); len(m) > 0 {
			missing = append(missing, m...)
			warnings = append(warnings, fmt.Sprintf("without %s %s", names(m), o.lost))
		}
	}
	if len(missing) > 0 {
		warnings = append(warnings, "to see them all: "+remedy(missing))
	}
	return warnings
}

// remedy says how a fulgur that lacks capabilities gets all that it can use.
func remedy(missing []Capability) string {
	caps := []Capability{BPF, Perfmon, SysPtrace, CheckpointRestore, DACReadSearch}
	if slices.Contains(missing, SysAdmin) { // a kernel without the first two
		caps = []Capability{SysAdmin, SysPtrace, DACReadSearch}
	}
	text := make([]string, len(caps))
	for i, c := range caps {
		text[i] = strings.ToLower(c.String())
	}
	return fmt.Sprintf("run fulgur with sudo, or once: sudo setcap %s=ep %s", strings.Join(text, ","), executable())
}

// executable is the file to give capabilities to.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "fulgur"
	}
	return path
}
