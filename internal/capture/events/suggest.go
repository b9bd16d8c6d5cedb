package events

import (
	"fmt"
	"strings"

	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/symbolize"
)

// ParseGiven parses the name of an event that a user gave; see [Parse]. If the name lacks the
// kind or the group, the error has the names of events that exist.
func ParseGiven(s string) (Event, error) {
	e, err := Parse(s)
	if err == nil {
		return e, nil
	}
	if all := complete(s); len(all) > 0 {
		n := nearest{}
		for _, name := range all[:min(len(all), nearestNames)] {
			n.best = append(n.best, candidate{name: name})
		}
		return Event{}, usage.Errorf("event %q: the kind or the group is missing%s", s, &n)
	}
	return Event{}, usage.Errorf("%v", err)
}

// complete returns the events of the kernel whose own name is name, or the entry of the
// system call of that name: tracepoints first.
func complete(name string) (all []string) {
	if !isName(name) || IsGlob(name) {
		return nil
	}
	r := Resolver{}
	defer func() { _ = r.Close() }()
	if tracing, err := r.tracefs(); err == nil {
		names, _ := tracing.Tracepoints() // without them, the error has the forms
		for _, full := range names {
			group, own, _ := strings.Cut(full, ":")
			if own == name || group == syscallGroup && own == "sys_enter_"+name {
				all = append(all, full)
			}
		}
	}
	_ = symbolize.KernelFunctions(func(function []byte, _ uint64) bool {
		if string(function) == name {
			all = append(all, fmt.Sprintf("%s:%s", Kprobe, name))
			return false
		}
		return true
	})
	return all
}
