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
// say so. If p does not count its samples, it only clears the losses that no longer apply.
func (p *Profile) CountUnnamed() {
	unnamed := make([]bool, len(p.Frames))
	type code struct {
		function FunctionID
		mapping  MappingID
		address  uint64
	}
	distinct := map[code]bool{}
	for id := 1; id < len(p.Frames); id++ {
		f := p.Frames[id]
		if f.Kind == KindMarker || p.Named(FrameID(id)) {
			continue
		}
		unnamed[id] = true
	}
	below := make([]bool, len(p.Stacks)) // whether a stack has such a frame
	for id := 1; id < len(p.Stacks); id++ {
		s := p.Stacks[id]
		below[id] = below[s.Parent] || unnamed[s.Frame]
	}
	var leaves, generated, callers uint64
	counts := p.counts()
	for _, s := range p.Samples {
		switch leaf := p.Stacks[s.Stack].Frame; {
		case unnamed[leaf] && p.Frames[leaf].Kind == KindJIT:
			generated += s.count(counts)
		case unnamed[leaf]:
			leaves += s.count(counts)
			f := p.Frames[leaf]
			if f.Function != 0 {
				f.Address = 0
			}
			distinct[code{f.Function, f.Mapping, f.Address}] = true
		case below[s.Stack]:
			callers += s.count(counts)
		}
	}
	if counts < 0 {
		leaves = min(leaves, 1) * p.Losses[LossUnresolved]
		generated = min(generated, 1) * p.Losses[LossUnresolvedGenerated]
		callers = min(callers, 1) * p.Losses[LossUnresolvedCallers]
	}
	p.Losses[LossUnresolved], p.Losses[LossUnresolvedGenerated], p.Losses[LossUnresolvedCallers] = leaves, generated, callers
	p.Losses[LossUnresolvedFrames] = uint64(len(distinct))
}
