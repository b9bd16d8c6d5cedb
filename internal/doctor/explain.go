package doctor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/tracing"
	"fulgur/internal/message/usage"
)

// Error reports why an operation cannot work, and the remedy.
type Error struct {
	// Doing is the operation, such as "loading BPF programs".
	Doing string
	// Problems are the causes. There are several only if capabilities are missing,
	// because one remedy grants all of them.
	Problems []Problem
	// Err is the error of the operation, nil if it was not tried.
	Err error
}

// Error returns the problem and its remedy. It omits e.Err, which can mislead: the
// error of bpf() suggests the limit on locked memory, which is a cause only before
// Linux 5.11.
func (e *Error) Error() string {
	first := e.Problems[0]
	if first.missing == 0 {
		return e.Doing + ": " + first.String()
	}
	return fmt.Sprintf("%s needs %s: %s", e.Doing, capabilities(e.Problems), first.Remedy)
}

// Instead says in a sentence what this user can measure nevertheless, "" if that is nothing, or if the user has all privileges.
func (e *Error) Instead() string {
	f, err := Read()
	if err != nil {
		return ""
	}
	clock, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		return ""
	}
	return f.instead(perfevent.TryUser(clock), tracing.Permitted())
}

// instead is [Error.Instead]. tried is the error of an event of user code, and stops that of ptrace.
func (f *Facts) instead(tried, stops error) string {
	privileged := f.Can(capability.BPF) && f.Can(capability.Perfmon) && !f.UserNamespace
	own := fmt.Sprintf("of your own processes (%s) and commands", usage.Process)
	waits := "fulgur profile, top, offcpu and record measure code and waits " + own
	scope := f.sysctl(sysctlPtrace, 0)
	switch {
	case privileged:
		return ""
	case tried == nil:
		return "Without privileges, " + waits + "."
	case stops == nil && scope == 0:
		return "Without privileges, fulgur profile and fulgur top measure the code " + own + "."
	case stops == nil && scope == 1:
		return "Without privileges, fulgur profile measures commands."
	case refused(tried) && f.sysctl(sysctlParanoid, 2) > 2:
		return "Without privileges, " + waits + ", after: " + paranoidRemedy(f).Paste
	}
	return ""
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// capabilities returns the missing capabilities as part of a sentence.
func capabilities(problems []Problem) string {
	var names []string
	for _, p := range problems {
		if name := p.missing.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// together returns the first problem. If that is a missing capability, it returns
// all missing capabilities.
func together(problems []Problem) []Problem {
	if len(problems) == 0 || problems[0].missing == 0 {
		return problems[:min(len(problems), 1)]
	}
	return slices.DeleteFunc(problems, func(p Problem) bool { return p.missing == 0 })
}

// Preflight checks whether a command can work, without trying anything. It returns
// an [*Error] if it cannot, and otherwise a warning for each loss.
func Preflight(f *Facts, c Command) (warnings []string, err error) {
	var stops []Problem
	var remedies []string
	for _, p := range problems(grounds, f) {
		stopped, costs := p.hits(c)
		switch {
		case stopped:
			if p.whatFor != nil {
				p.What = p.whatFor(c)
			}
			stops = append(stops, p)
		case costs && !p.minor:
			warnings = append(warnings, p.warning())
			if r := p.Remedy.String(); r != "" && !slices.Contains(remedies, r) {
				remedies = append(remedies, r)
			}
		}
	}
	if len(stops) > 0 {
		return nil, &Error{Doing: "profiling", Problems: together(stops)}
	}
	for _, r := range remedies {
		warnings = append(warnings, "to avoid these losses: "+r)
	}
	return warnings, nil
}

// CheckPrivileges runs [Preflight] on this machine and returns its error. It writes
// the warnings to stderr unless quiet is set.
func CheckPrivileges(c Command, stderr io.Writer, quiet bool) error {
	facts, err := Read()
	if err != nil {
		return err
	}
	warnings, err := Preflight(&facts, c)
	if err != nil {
		return err
	}
	slog.Debug("privileges", "facts", fmt.Sprintf("%+v", facts), "warnings", warnings)
	if !quiet {
		for _, w := range warnings {
			fmt.Fprintln(stderr, "fulgur:", w)
		}
	}
	return nil
}

// warning returns the loss and its cause.
func (p *Problem) warning() string {
	if p.missing != 0 {
		return fmt.Sprintf("without %s, %s", p.missing, p.Lost)
	}
	return p.What + ": " + p.Lost
}

// Explain adds the likely cause and its remedy to err if it is EPERM or EACCES, as
// an [*Error]. It wraps any other error with doing, the operation that failed, such
// as "loading BPF programs". needed are the capabilities that the operation needs; none
// means the capabilities for bpf() and perf_event_open(). Explain returns nil if err
// is nil.
func Explain(err error, doing string, needed ...capability.Capability) error {
	if err == nil {
		return nil
	}
	f, readErr := Read()
	if readErr != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return f.explain(err, doing, needed...)
}

func (f *Facts) explain(err error, doing string, needed ...capability.Capability) error {
	if !refused(err) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if len(needed) == 0 {
		needed = []capability.Capability{capability.BPF, capability.Perfmon}
	}
	causes := f.causes(capability.SetOf(needed...))
	if len(causes) == 0 {
		causes = []Problem{{
			What:   fmt.Sprintf("refused (%v) although %s in effect", err, inEffect(needed)),
			Remedy: f.unknownCause(),
		}}
	}
	return &Error{Doing: doing, Problems: causes, Err: err}
}

// unknownCause returns the remedy for a refusal that no check explains.
func (f *Facts) unknownCause() Remedy {
	if f.Lent != 0 {
		// The file of this process's memory, which kprobes and uprobes need, and tracefs are root's.
		return Remedy{Do: "run fulgur with sudo: the capabilities of its file are not enough"}
	}
	return Remedy{Do: "a security module (SELinux, AppArmor) may forbid it; see dmesg and the audit log"}
}

// refused reports whether err means that privileges are missing.
func refused(err error) bool {
	if errors.Is(err, perfevent.ErrLockedMemory) {
		return false // the error itself names the remedy
	}
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
}

func inEffect(caps []capability.Capability) string {
	names := make([]string, len(caps))
	for i, c := range caps {
		names[i] = c.String()
	}
	verb := " are"
	if len(caps) == 1 {
		verb = " is"
	}
	return strings.Join(names, " and ") + verb
}
