package attach

import (
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
)

// Values returns the values of samples if each event is a source with values of the given
// types: one for all events, and if there are several, one for each event, whose name
// precedes the type.
func Values(all []events.Event, types ...profile.ValueType) []source.Value {
	values := source.Sums(max(len(all), 1), types...)
	if len(all) < 2 {
		return values
	}
	for at, e := range all {
		for i, t := range types {
			own := source.Value{ValueType: t, Of: make([][]int, at+1)}
			own.Type = e.String() + " " + own.Type
			own.Of[at] = []int{i}
			values = append(values, own)
		}
	}
	return values
}

// Place adds the stack of a sample to the profile, without the kernel's own functions that
// run programs. The name of an event, unless it is "", is on top.
func Place(p *naming.StackBuilder, s stacks.Sample, event string, userOnly bool) profile.StackID {
	return mark(p, p.PlaceFrom(p.WithoutProbe(p.Store.Traces[s.Trace].Leaf), userOnly), event)
}

// mark puts the name of an event, unless it is "", on top of a stack.
func mark(p *naming.StackBuilder, stack profile.StackID, event string) profile.StackID {
	if event == "" {
		return stack
	}
	return p.Mark(stack, "["+event+"]")
}
