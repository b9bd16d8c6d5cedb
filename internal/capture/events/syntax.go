// Package events turns the names of events into attach points: tracepoints, functions of
// the kernel and of files, and USDT probes. It also finds the fields of events and
// compiles filters of them, for bpf/field.h.
package events

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"fulgur/internal/message/usage"
)

// Kind is the kind of an event.
type Kind uint8

// The kinds of events, in the words of bpftrace.
const (
	// Tracepoint is a static tracepoint of the kernel.
	Tracepoint Kind = iota
	// Kprobe and Kretprobe are the entry of a function of the kernel, and its return.
	Kprobe
	Kretprobe
	// Uprobe and Uretprobe are an instruction of a file, usually the entry of a function,
	// and the return of a function.
	Uprobe
	Uretprobe
	// USDT is a static probe in a file (SystemTap's sys/sdt.h).
	USDT
)

// kinds are the names of the kinds.
var kinds = [...]string{"tracepoint", "kprobe", "kretprobe", "uprobe", "uretprobe", "usdt"}

// String returns the name that [Parse] accepts, such as "kprobe".
func (k Kind) String() string { return kinds[k] }

// InKernel reports whether the event is in the kernel rather than in a file.
func (k Kind) InKernel() bool { return k <= Kretprobe }

// InStack reports whether the stacks of hits have the name of the function that was hit, as
// their innermost frame. userOnly is set if stacks lack the kernel's part.
func (k Kind) InStack(userOnly bool) bool { return k == Uprobe || k == Kprobe && !userOnly }

// Event is the name of an event. Names can contain the wildcards * and ?.
type Event struct {
	Kind Kind
	// Path is the file of a uprobe, a uretprobe or a USDT probe.
	Path string
	// Group is the group of a tracepoint, or the provider of a USDT probe.
	Group string
	// Name is the name of a tracepoint, a function or a USDT probe.
	Name string
	// Offset is added to the address of the function of a uprobe, in bytes.
	Offset uint64
}

// Limits of what [Parse] accepts.
const (
	maxEvent = 4096 + 1024 // bytes
	maxStars = 16
)

// forms are the forms of events in error messages.
var forms = map[Kind]string{
	Tracepoint: "tracepoint:GROUP:NAME",
	Kprobe:     "kprobe:FUNCTION",
	Kretprobe:  "kretprobe:FUNCTION",
	Uprobe:     "uprobe:PATH:FUNCTION[+OFFSET]",
	Uretprobe:  "uretprobe:PATH:FUNCTION",
	USDT:       "usdt:PATH:PROVIDER:NAME",
}

// Parse parses the name of an event: "tracepoint:sched:sched_switch", or as perf writes
// it "sched:sched_switch"; "kprobe:vfs_read"; "kretprobe:vfs_read";
// "uprobe:/bin/bash:readline+4"; "uretprobe:/bin/bash:readline";
// "usdt:/usr/bin/python3:python:gc__start".
func Parse(s string) (Event, error) {
	e, err := parse(s)
	if first, _, several := strings.Cut(s, ","); err != nil && several && IsEvent(first) {
		return Event{}, fmt.Errorf("event %q: give several events one by one, each with %s", s, usage.Event)
	}
	return e, err
}

func parse(s string) (Event, error) {
	if len(s) > maxEvent || strings.Count(s, "*") > maxStars {
		return Event{}, errors.New("the event's name is too long")
	}
	for _, c := range []byte(s) {
		if c < ' ' || c == 0x7f {
			return Event{}, fmt.Errorf("event %q has a control character", s)
		}
	}
	word, rest, found := strings.Cut(s, ":")
	for kind, name := range kinds {
		if word == name {
			e := Event{Kind: Kind(kind)}
			if !e.fill(rest) {
				return Event{}, fmt.Errorf("event %q: the form is %s", s, forms[e.Kind])
			}
			return e, nil
		}
	}
	e := Event{Kind: Tracepoint}
	if found && !strings.ContainsAny(s, "/+ ") && e.fill(s) {
		return e, nil
	}
	if found && strings.Contains(rest, ":") {
		return Event{}, fmt.Errorf("event %q: %q is not a kind of event; the kinds are %s", s, word, strings.Join(kinds[:], ", "))
	}
	return Event{}, fmt.Errorf("event %q: the forms are %s, or GROUP:NAME for tracepoints; the system call NAME is syscalls:sys_enter_NAME", s, strings.Join([]string{
		forms[Tracepoint], forms[Kprobe], forms[Kretprobe], forms[Uprobe], forms[Uretprobe], forms[USDT],
	}, ", "))
}

// fill sets the fields from the part of a name after the kind, and returns whether it is
// complete.
func (e *Event) fill(s string) bool {
	var complete bool
	switch e.Kind {
	case Tracepoint:
		e.Group, e.Name, complete = strings.Cut(s, ":")
		return complete && isName(e.Group) && isName(e.Name)
	case Kprobe, Kretprobe:
		e.Name = s
		return isName(s)
	case Uprobe:
		e.Path, e.Name, complete = strings.Cut(s, ":")
		e.Name, e.Offset, _ = cutOffset(e.Name)
	case Uretprobe:
		e.Path, e.Name, complete = strings.Cut(s, ":")
	case USDT:
		e.Path, s, complete = strings.Cut(s, ":")
		if complete {
			e.Group, e.Name, complete = strings.Cut(s, ":")
		}
		complete = complete && isName(e.Group) && isName(e.Name)
	}
	// An offset from several functions is never meant.
	return complete && e.Path != "" && e.Name != "" && (e.Offset == 0 || !IsGlob(e.Name))
}

// isName reports whether s can be the name of a tracepoint or a function of the kernel,
// or a pattern of such names.
func isName(s string) bool {
	return s != "" && !strings.ContainsAny(s, ":/+ ")
}

// cutOffset cuts the offset from the end of s, "f+4" or "f+0x4". found is false if there is none.
func cutOffset(s string) (name string, offset uint64, found bool) {
	i := strings.LastIndexByte(s, '+')
	if i < 0 {
		return s, 0, false
	}
	offset, err := strconv.ParseUint(s[i+1:], 0, 32)
	if err != nil {
		return s, 0, false
	}
	return s[:i], offset, true
}

// String returns the name in the form that [Parse] accepts.
func (e Event) String() string {
	switch e.Kind {
	case Tracepoint:
		return e.Kind.String() + ":" + e.Group + ":" + e.Name
	case Kprobe, Kretprobe:
		return e.Kind.String() + ":" + e.Name
	case USDT:
		return e.Kind.String() + ":" + e.Path + ":" + e.Group + ":" + e.Name
	}
	s := e.Kind.String() + ":" + e.Path + ":" + e.Name
	// Without an offset, the end of a name such as "f+4" would be taken for one.
	if _, _, like := cutOffset(e.Name); e.Offset > 0 || like && e.Kind == Uprobe {
		s += fmt.Sprintf("+%#x", e.Offset)
	}
	return s
}

// modifiers are those that perf accepts after an event's name, as in "cycles:u".
const modifiers = "ukhpPGHISDeW"

// IsEvent reports whether s names an event of this package rather than one of perf's own,
// such as "cycles:u".
func IsEvent(s string) bool {
	e, err := Parse(s)
	return err == nil && (e.Kind != Tracepoint || strings.Trim(e.Name, modifiers) != "")
}
