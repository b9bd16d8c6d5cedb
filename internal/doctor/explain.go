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
)

// Error is what keeps fulgur from doing something, with the remedy.
type Error struct {
	// Doing is what it wanted to do: "load BPF programs".
	Doing string
	// Problems are the causes: several only if capabilities are missing,
	// since one remedy gets them all.
	Problems []Problem
	// Err is what was refused; nil if it was not tried.
	Err error
}

// Error says what is wrong and what to do. It leaves out what the kernel said,
// which misleads: a refusal of bpf() looks like a limit on locked memory, which
// was one of its causes before Linux 5.11.
func (e *Error) Error() string {
	first := e.Problems[0]
	if first.missing == 0 {
		return e.Doing + ": " + first.String()
	}
	return fmt.Sprintf("%s needs %s: %s", e.Doing, capabilities(e.Problems), first.Remedy)
}

// Unwrap returns what was refused.
func (e *Error) Unwrap() error { return e.Err }

// capabilities lists those that are missing as a sentence does.
func capabilities(problems []Problem) string {
	var names []string
	for _, p := range problems {
		if name := p.missing.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// together returns the first problem, and if it is a missing capability the
// others that are.
func together(problems []Problem) []Problem {
	if len(problems) == 0 || problems[0].missing == 0 {
		return problems[:min(len(problems), 1)]
	}
	return slices.DeleteFunc(problems, func(p Problem) bool { return p.missing == 0 })
}

// Preflight returns what keeps a command from working, before anything is
// tried, as an [*Error], and what it will have to do without, a line each.
func Preflight(f *Facts, c Command) (warnings []string, err error) {
	var stops []Problem
	var remedies []string
	for _, p := range problems(grounds, f) {
		stopped, costs := p.hits(c)
		switch {
		case stopped:
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
		warnings = append(warnings, "to lose none of that: "+r)
	}
	return warnings, nil
}

// CheckPrivileges fails as [Preflight] does where a command cannot work on this
// machine, and writes what it will lose to stderr, unless quiet.
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

// warning says what is lost, and why.
func (p *Problem) warning() string {
	if p.missing != 0 {
		return fmt.Sprintf("without %s %s", p.missing, p.Lost)
	}
	return p.What + ": " + p.Lost
}

// Explain returns err with, if it is a refusal (EPERM or EACCES), its likely
// cause and the remedy, as an [*Error]. An error of another kind is only
// wrapped with what we were doing: "load BPF programs". The capabilities needed
// are those of bpf() and perf_event_open() unless others are given. The result
// wraps err; that of nil is nil.
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
			Remedy: unknownCause,
		}}
	}
	return &Error{Doing: doing, Problems: causes, Err: err}
}

// unknownCause is what to do about a refusal that no check explains.
var unknownCause = Remedy{Do: "a security module (SELinux, AppArmor) may forbid it, see dmesg and the audit log"}

// refused reports whether err is a refusal for lack of rights.
func refused(err error) bool {
	if errors.Is(err, perfevent.ErrLockedMemory) {
		return false // says itself what to do
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
