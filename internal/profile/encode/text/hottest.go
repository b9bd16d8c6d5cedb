package text

import (
	"cmp"
	"slices"

	"fulgur/internal/profile"
)

// row is a function, or the unnamed frames of a module, with its self and total sums of a
// value. Functions with the same name are one row: inlining may give parts of a function
// different source files, or none.
type row struct {
	name, module string
	note         bool // not a function
	self, total  int64
}

// Function is a function, or the unnamed frames of a module, with its self and total sums of
// a value. In [Hottest.Programs], Self is the sum of the stacks in which the function is the
// innermost one of a program.
type Function struct {
	Name, Module string
	Self, Total  int64
}

// Hottest is where a profile has most of a value, in lists with the highest sums first.
type Hottest struct {
	// Functions are functions with their self sums.
	Functions []Function
	// Programs are the innermost functions of programs, if most stacks end in notes, or all
	// in a few functions that are none of them. Otherwise there are none.
	Programs []Function
	// Reasons are the notes at the ends of stacks, if most stacks end in notes.
	Reasons []Function
}

// HottestOf returns up to n of the hottest functions of p by a value.
func HottestOf(p *profile.Profile, n, value int) Hottest {
	rows := hottest(p, len(p.Frames), value)
	notes, reasons := int64(0), []row(nil)
	for _, r := range rows {
		if r.note {
			notes += r.self
			reasons = append(reasons, r)
		}
	}
	h := Hottest{Functions: functions(rows, n)}
	isNoted := 2*notes > p.Magnitude(value)
	if isNoted {
		h.Reasons = functions(reasons, n)
	}
	if isNoted || len(rows) <= fewLeaves && !endsInPrograms(p, value) {
		h.Programs = functions(innermost(p, value), n)
	}
	if slices.Equal(h.Programs, h.Functions) {
		h.Programs = nil
	}
	return h
}

// fewLeaves is the maximum number of functions that say less about a profile than the
// functions that call them: an allocator's, for example, or the kernel's at a tracepoint.
const fewLeaves = 4

// functions returns the first n rows.
func functions(rows []row, n int) (list []Function) {
	for _, r := range rows[:min(n, len(rows))] {
		list = append(list, Function{r.name, r.module, r.self, r.total})
	}
	return list
}

// hottest returns up to n rows of p with the highest self value, in magnitude, hottest first, without
// rows whose self value is 0.
func hottest(p *profile.Profile, n, value int) []row {
	return sorted(tally(p, value, leaf(p)), n)
}

// sorted returns up to n rows with the highest self value, hottest first, without rows
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

// leaf returns the leaf of each stack.
func leaf(p *profile.Profile) []profile.FrameID {
	list := make([]profile.FrameID, len(p.Stacks))
	for id, s := range p.Stacks {
		list[id] = s.Frame
	}
	return list
}

// tally returns all rows of p with their sums of a value, in an order independent of the
// value. own holds for each stack the frame whose function has the value as its self value, 0 if
// there is none; stacks with a waker have that of the waiter. The time does not depend on the
// depth of stacks.
func tally(p *profile.Profile, value int, own []profile.FrameID) []row {
	rows, rowOf := newRows(p)
	sums := make([]int64, len(p.Stacks))
	waiters := p.Waiters()
	for _, s := range p.Samples {
		waiter := waiters[s.Stack]
		if waiter == 0 {
			continue
		}
		sums[s.Stack] += s.Values[value]
		if f := own[waiter]; f != 0 {
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
