package text

import (
	"cmp"
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/profile/own"
)

// row is a function, or the unnamed frames of a module, with its sums of a value, as in [Function].
// Functions with the same name are one row: inlining may give parts of a function different source
// files, or none.
type row struct {
	name, module      string
	note              bool // not a function
	self, total, leaf int64
}

// Function is a function, or the unnamed frames of a module, with its sums of a value.
type Function struct {
	Name, Module string
	// Caller is the script function that called the function most, if it is native and owns stacks
	// of scripts. Otherwise it is empty.
	Caller string
	// Self is the sum of the stacks that the function owns, see package own. In
	// [Hottest.Programs], it is that of the stacks in which the function is the innermost one of a
	// program.
	Self int64
	// Total is the sum of the stacks that contain the function, and Leaf of those that end in it.
	Total, Leaf int64
}

// Hottest is where a profile has most of a value, in lists with the highest sums first.
type Hottest struct {
	// Functions are functions with their self sums.
	Functions []Function
	// IsOwn is set if Self differs from Leaf: the profile has functions of interpreted languages,
	// which own the time of their interpreter.
	IsOwn bool
	// Lines are the lines of these functions, if IsOwn is set.
	Lines []Line
	// Programs are the innermost functions of programs, if most stacks end in notes, or all
	// in a few functions that are none of them. Otherwise there are none.
	Programs []Function
	// Reasons are the notes at the ends of stacks, if most stacks end in notes.
	Reasons []Function
}

// HottestOf returns up to n of the hottest functions of p by a value. Native counts each stack for
// its leaf, even if that is an interpreter's function.
func HottestOf(p *profile.Profile, n, value int, native bool) Hottest {
	owners := OwnersOf(p, native)
	rows := sorted(tally(p, value, owners.Frames), len(p.Frames))
	notes, reasons := int64(0), []row(nil)
	for _, r := range rows {
		if r.note {
			notes += r.self
			reasons = append(reasons, r)
		}
	}
	h := Hottest{Functions: functions(rows, n), IsOwn: owners.Scripts}
	if h.IsOwn {
		h.Lines = hottestLines(p, n, value, owners)
	}
	isNoted := 2*notes > p.Magnitude(value)
	if isNoted {
		h.Reasons = functions(reasons, n)
	}
	if isNoted || len(rows) <= fewLeaves && !belongToPrograms(p, value, owners) {
		h.Programs = functions(sorted(tally(p, value, own.Innermost(p).Frames), len(p.Frames)), n)
	}
	if slices.Equal(h.Programs, h.Functions) {
		h.Programs = nil
	}
	if h.IsOwn {
		nameCallers(h.Functions, p, value, owners)
	}
	return h
}

// nameCallers sets the callers of functions.
func nameCallers(list []Function, p *profile.Profile, value int, owners own.Owners) {
	type callee struct{ name, module string }
	sums := map[callee]map[string]int64{}
	for _, f := range list {
		sums[callee{f.Name, f.Module}] = map[string]int64{}
	}
	waiters := p.Waiters()
	for _, s := range p.Samples {
		id := owners.Frames[waiters[s.Stack]]
		by := owners.Callers[waiters[s.Stack]]
		if by == 0 || by == id || p.Frames[id].Kind == profile.KindMarker {
			continue
		}
		if of := sums[callee{p.GroupName(id), p.ModuleName(p.Frames[id].Mapping)}]; of != nil {
			of[p.FrameName(by)] += magnitude(s.Values[value])
		}
	}
	for i, f := range list {
		most := int64(0)
		for name, sum := range sums[callee{f.Name, f.Module}] {
			if sum > most || sum == most && name < list[i].Caller {
				list[i].Caller, most = name, sum
			}
		}
	}
}

// OwnersOf returns the owners of the stacks of p. Native counts each stack for its leaf, even if that is
// an interpreter's function.
func OwnersOf(p *profile.Profile, native bool) own.Owners {
	if native {
		return own.Leaves(p)
	}
	return own.Of(p)
}

// belongToPrograms reports whether a stack with a value belongs to a program's function.
func belongToPrograms(p *profile.Profile, value int, owners own.Owners) bool {
	waiters := p.Waiters()
	return slices.ContainsFunc(p.Samples, func(s profile.Sample) bool {
		return s.Values[value] != 0 && s.Stack != 0 && owners.IsProgram(owners.Frames[waiters[s.Stack]])
	})
}

// fewLeaves is the maximum number of functions that say less about a profile than the
// functions that call them: an allocator's, for example, or the kernel's at a tracepoint.
const fewLeaves = 4

// functions returns the first n rows.
func functions(rows []row, n int) (list []Function) {
	for _, r := range rows[:min(n, len(rows))] {
		list = append(list, Function{Name: r.name, Module: r.module, Self: r.self, Total: r.total, Leaf: r.leaf})
	}
	return list
}

// sorted returns up to n rows with the highest self value, in magnitude, hottest first, without rows
// whose self value is 0.
func sorted(rows []row, n int) []row {
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.self == 0 })
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(magnitude(b.self), magnitude(a.self)), cmp.Compare(b.self, a.self), cmp.Compare(b.total, a.total),
			cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module))
	})
	return rows[:min(n, len(rows))]
}

// magnitude returns the absolute amount of a value, which is negative in comparisons by pprof.
func magnitude(n int64) int64 { return max(n, -n) }

// tally returns all rows of p with their sums of a value, in an order independent of the
// value. owners holds for each stack the frame whose function has the value as its self value, 0 if
// there is none; stacks with a waker have that of the waiter. The time does not depend on the
// depth of stacks.
func tally(p *profile.Profile, value int, owners []profile.FrameID) []row {
	rows, rowOf := newRows(p)
	sums := make([]int64, len(p.Stacks))
	waiters := p.Waiters()
	for _, s := range p.Samples {
		waiter := waiters[s.Stack]
		if waiter == 0 {
			continue
		}
		sums[s.Stack] += s.Values[value]
		rows[rowOf[p.Stacks[waiter].Frame]].leaf += s.Values[value]
		if f := owners[waiter]; f != 0 {
			rows[rowOf[f]].self += s.Values[value]
		}
	}
	p.AddUp(sums)
	// A function that calls itself counts once.
	active := make([]int, len(rows))
	callees := p.Callees()
	for id := callees.First[0]; id != 0; {
		r := rowOf[p.Stacks[id].Frame]
		if active[r] == 0 {
			rows[r].total += sums[id]
		}
		active[r]++
		next := callees.First[id]
		for next == 0 && id != 0 {
			active[rowOf[p.Stacks[id].Frame]]--
			next, id = callees.Next[id], p.Stacks[id].Parent
		}
		id = next
	}
	return rows
}

// newRows returns an empty row for each function of each module, and the index of each
// frame's row.
func newRows(p *profile.Profile) (rows []row, rowOf []int) {
	type key struct{ name, system, module string }
	index := map[key]int{}
	rowOf = make([]int, len(p.Frames))
	for id := 1; id < len(p.Frames); id++ {
		f := p.Frames[id]
		module, note := "-", f.Kind == profile.KindMarker
		if !note {
			module = p.ModuleName(f.Mapping)
		}
		k := key{name: p.GroupName(profile.FrameID(id)), system: p.Functions[f.Function].SystemName, module: module}
		r, ok := index[k]
		if !ok {
			r = len(rows)
			index[k] = r
			rows = append(rows, row{name: k.name, module: module, note: note})
		}
		rowOf[id] = r
	}
	return rows, rowOf
}
