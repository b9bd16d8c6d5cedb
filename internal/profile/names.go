package profile

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// FrameName returns the displayed name of frame id: the function's name, or for an
// unresolved frame its module and address, "[libfoo.so+0x1234]". A function without a
// symbol is named after its module and the address where it begins, "libfoo.so+0x1200". If
// nothing is known, the name is "[unknown]".
func (p *Profile) FrameName(id FrameID) string {
	f := p.Frames[id]
	if f.Function != 0 {
		return p.Functions[f.Function].Name
	}
	if f.Mapping == 0 {
		if f.Address == 0 {
			return "[unknown]"
		}
		return fmt.Sprintf("[unknown+%#x]", f.Address)
	}
	return fmt.Sprintf("[%s+%#x]", p.ModuleName(f.Mapping), f.Address)
}

// Renamed returns p with the names of functions replaced by rename's results. The other
// tables are shared with p.
func (p *Profile) Renamed(rename func(string) string) *Profile {
	q := *p
	q.Functions = slices.Clone(p.Functions)
	for i := range q.Functions {
		q.Functions[i].Name = rename(q.Functions[i].Name)
	}
	return &q
}

// Named reports whether the function of frame id has a name other than the address where
// it begins. It decides by the form of the name, which all formats keep.
func (p *Profile) Named(id FrameID) bool {
	f := p.Frames[id]
	if f.Function == 0 {
		return false
	}
	start, ok := strings.CutPrefix(p.Functions[f.Function].Name, strings.TrimSuffix(p.ModuleName(f.Mapping), " (deleted)")+"+0x")
	if !ok || f.Mapping == 0 {
		return true
	}
	_, err := strconv.ParseUint(start, 16, 64)
	return err != nil
}

// GroupName returns the name under which tables of functions show frame id: its function's
// name, or a note on all frames of the module without one.
func (p *Profile) GroupName(id FrameID) string {
	f := p.Frames[id]
	switch {
	case f.Function != 0:
		return p.Functions[f.Function].Name
	case f.Kind == KindJIT:
		return Unnamed[0]
	}
	return Unnamed[1]
}

// Unnamed are the names of [Profile.GroupName] for frames without a function.
var Unnamed = []string{"[generated code]", "[no name]"}

// WokenBy is the note between the stack of a wait and the stack of the thread that ended it,
// which is on top, upside down.
const WokenBy = "[woken by]"

// Waiters returns for each stack the part that belongs to the thread that waited, without the stack
// of the thread that ended the wait.
func (p *Profile) Waiters() []StackID {
	wakes := make([]bool, len(p.Frames))
	for id := 1; id < len(wakes); id++ {
		wakes[id] = p.Frames[id].Kind == KindMarker && p.FrameName(FrameID(id)) == WokenBy
	}
	list := make([]StackID, len(p.Stacks))
	for id := 1; id < len(list); id++ {
		s := p.Stacks[id]
		switch {
		case wakes[s.Frame]:
			list[id] = s.Parent
		case list[s.Parent] != s.Parent:
			list[id] = list[s.Parent] // on top of the note
		default:
			list[id] = StackID(id)
		}
	}
	return list
}

// IsFile reports whether a mapping with this path is of a file, rather than of a region such
// as "[vdso]" or an unknown one.
func IsFile(path string) bool { return path != "" && path[0] != '[' }

// UnknownModule is the name of the module of frames without a mapping.
const UnknownModule = "unknown"

// ModuleName returns the short name of mapping id: the last element of its
// path without the brackets of a pseudo file, or [UnknownModule] for 0.
func (p *Profile) ModuleName(id MappingID) string {
	if id == 0 {
		return UnknownModule
	}
	name := p.Mappings[id].Path
	if n := len(name); n > 2 && name[0] == '[' && name[n-1] == ']' {
		return name[1 : n-1]
	}
	return path.Base(name)
}

// CountUnnamed counts the samples and functions without names, and sets the losses that
// say so. unread means that names in files were not looked up, so that they do not count as
// missing. If p does not count its samples, CountUnnamed only clears the losses that no longer apply.
func (p *Profile) CountUnnamed(unread bool) {
	type code struct {
		function FunctionID
		mapping  MappingID
		address  uint64
	}
	distinct := map[code]bool{}
	var found Losses
	counts, missing := p.counts(), p.MissingNames(unread)
	for _, s := range p.Samples {
		m := missing[s.Stack]
		if !m.Missing {
			continue
		}
		found[m.Loss] += s.count(counts)
		if m.Loss == LossUnresolved {
			f := p.Frames[m.Own]
			if f.Function != 0 {
				f.Address = 0
			}
			distinct[code{f.Function, f.Mapping, f.Address}] = true
		}
	}
	for _, cause := range []Loss{LossUnresolved, LossUnresolvedGenerated, LossUnresolvedCallers} {
		if counts < 0 {
			found[cause] = min(found[cause], 1) * p.Losses[cause]
		}
		p.Losses[cause] = found[cause]
	}
	p.Losses[LossUnresolvedFrames] = uint64(len(distinct))
}

// MissingName is what a stack lacks in names.
type MissingName struct {
	// Own is the stack's own function: the innermost frame that is no note, without the
	// stack of a waker.
	Own FrameID
	// Missing says that a frame has no name, and Loss which loss that is.
	Missing bool
	Loss    Loss
}

// MissingNames returns what each stack lacks in names. unread is as in [Profile.CountUnnamed].
func (p *Profile) MissingNames(unread bool) []MissingName {
	unnamed := make([]bool, len(p.Frames))
	for id := 1; id < len(p.Frames); id++ {
		f := p.Frames[id]
		isUnread := unread && f.Kind == KindUser && IsFile(p.Mappings[f.Mapping].Path)
		unnamed[id] = f.Kind != KindMarker && !isUnread && !p.Named(FrameID(id))
	}
	all := make([]MissingName, len(p.Stacks)) // a parent's number is lower than its children's
	waiters := p.Waiters()
	for id := 1; id < len(all); id++ {
		s := p.Stacks[id]
		switch callers := all[s.Parent]; {
		case waiters[id] != StackID(id):
			all[id] = all[waiters[id]]
		case p.Frames[s.Frame].Kind == KindMarker:
			all[id] = callers
		case unnamed[s.Frame] && p.Frames[s.Frame].Kind == KindJIT:
			all[id] = MissingName{s.Frame, true, LossUnresolvedGenerated}
		case unnamed[s.Frame]:
			all[id] = MissingName{s.Frame, true, LossUnresolved}
		default:
			all[id] = MissingName{s.Frame, callers.Missing, LossUnresolvedCallers}
		}
	}
	return all
}
