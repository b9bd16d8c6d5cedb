package latency

import (
	"strings"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/message/usage"
)

// Pair is two events, and how they match.
type Pair struct {
	Begin, End events.Event
	Match      Match
	// BeginKey and EndKey are the fields to compare, "" for none.
	BeginKey, EndKey string
	// Shown is set if the programs also read the other fields of Begin, and Show are the fields that they read otherwise.
	Shown bool
	Show  []events.ShowField
}

// Find returns the places of the events. The filter is a condition for the first. userOnly is
// set if stacks lack the kernel's part.
func (p Pair) Find(r *events.Resolver, filter events.Filter, userOnly bool) (begin, end *events.Probe, err error) {
	calls := p.Match == UserCall
	q := events.Query{Calls: calls, Filter: filter, Key: p.BeginKey, Shown: p.Shown, Show: p.Show, ByPoint: !p.Begin.Kind.InStack(userOnly)}
	if begin, err = attach.Resolve(r, p.Begin, q); err != nil {
		return nil, nil, err
	}
	end, err = r.Resolve(p.End, events.Query{Calls: calls, Key: p.EndKey})
	return begin, end, err
}

// wordPairs are words in the names of events that mark the beginning, with those that mark
// the end.
var wordPairs = [][2]string{
	{"sys_enter_", "sys_exit_"},
	{"__entry", "__return"},
	{"__start", "__done"},
	{"__begin", "__end"},
	{"_entry", "_exit"},
	{"_begin", "_end"},
}

// pairOf returns the pair that begins with an event. until and key are as in [Config].
func pairOf(begin events.Event, until, key string) (p Pair, err error) {
	p.Begin = begin
	if until != "" {
		if p.End, err = events.ParseGiven(until); err != nil {
			return p, err
		}
		err = p.setKey(key)
		return p, err
	}
	p.End = begin
	switch begin.Kind {
	case events.Kprobe:
		p.End.Kind, p.Match = events.Kretprobe, KernelCall
	case events.Uprobe:
		if begin.Offset > 0 {
			return p, usage.Errorf("%s is not the entry of a function: give the end of the interval with %s", begin, usage.Until)
		}
		p.End.Kind, p.Match = events.Uretprobe, UserCall
	case events.Kretprobe, events.Uretprobe:
		entry := begin
		entry.Kind-- // see [events.Kind]
		return p, usage.Errorf("%s is the end of calls: choose %s to measure their time", begin, entry)
	default:
		for _, words := range wordPairs {
			if strings.Contains(begin.Name, words[0]) {
				p.End.Name = strings.Replace(begin.Name, words[0], words[1], 1)
				err = p.setKey(key)
				return p, err
			}
		}
		return p, usage.Errorf("%s has no known end: give the event that ends the interval with %s", begin, usage.Until)
	}
	if key != "" {
		return p, usage.Errorf("calls of a function are matched with their own returns: %s is for two events, with %s", usage.Key, usage.Until)
	}
	return p, nil
}

// setKey sets how the events match.
func (p *Pair) setKey(key string) error {
	switch key {
	case "", "tid":
		p.Match = SameThread
		return nil
	}
	var two bool
	p.BeginKey, p.EndKey, two = strings.Cut(key, "=")
	if !two {
		p.EndKey = p.BeginKey
	}
	if p.BeginKey == "" || p.EndKey == "" {
		return usage.Errorf("%s %q: give tid, a field of both events, or two fields as FIELD=FIELD", usage.Key, key)
	}
	p.Match = SameField
	if !p.Begin.Kind.InKernel() && !p.End.Kind.InKernel() {
		p.Match = SameFieldInProcess // a value such as an address means nothing elsewhere
	}
	return nil
}
