package events

import (
	"fmt"
	"strings"

	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/symbolize"
)

// ParseGiven parses the name of an event that a user gave; see [Parse]. If the name lacks the
// kind or the group, the error has the nearest names of events of the kernel that exist.
func ParseGiven(s string) (Event, error) {
	e, err := Parse(s)
	if err == nil {
		return e, nil
	}
	name := strings.TrimPrefix(s, Tracepoint.String()+":")
	if !isName(name) {
		return Event{}, usage.Errorf("%v", err)
	}
	similar := &nearest{to: name}
	similar.addTracepoints()
	if !IsGlob(s) && name == s {
		similar.addFunction()
	}
	if similar.dropOthers() {
		return Event{}, usage.Errorf("event %q: the kind or the group is missing%s", s, similar)
	}
	return Event{}, usage.Errorf("%v%s", err, similar)
}

// addTracepoints adds the tracepoints whose names without the group are similar, and the entry of
// the system call of that name. For a pattern, it adds the pattern in each group with a match.
func (n *nearest) addTracepoints() {
	r := Resolver{}
	defer func() { _ = r.Close() }()
	tracing, err := r.tracefs()
	if err != nil {
		return // the error has no suggestions
	}
	names, _ := tracing.Tracepoints()
	for _, name := range names {
		group, own, _ := strings.Cut(name, ":")
		switch {
		case group == syscallGroup && own == "sys_enter_"+n.to:
			n.addAs(name, n.to)
		case !IsGlob(n.to):
			n.addAs(name, own)
		case Match(n.to, own):
			n.addAs(group+":"+n.to, n.to)
		}
	}
}

// addFunction adds the function of the kernel with this name.
func (n *nearest) addFunction() {
	_ = symbolize.KernelFunctions(func(name []byte, _ uint64) bool {
		if string(name) != n.to {
			return true
		}
		n.addAs(fmt.Sprintf("%s:%s", Kprobe, n.to), n.to)
		return false
	}) // otherwise the error has no such suggestion
}
