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
	self, total  int64
}

// Function is a function, or the unnamed frames of a module, with its self and total sums of
// a value.
type Function struct {
	Name, Module string
	Self, Total  int64
}

// Functions returns the n functions of p with the highest self value, as in a summary.
func Functions(p *profile.Profile, n, value int) (list []Function) {
	for _, r := range hottest(p, n, value) {
		list = append(list, Function{r.name, r.module, r.self, r.total})
	}
	return list
}

// hottest returns up to n rows of p with the highest self value, hottest first, without
// rows whose self value is 0.
func hottest(p *profile.Profile, n, value int) []row {
	rows := slices.DeleteFunc(tally(p, value), func(r row) bool { return r.self == 0 })
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.self, a.self), cmp.Compare(b.total, a.total),
			cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module))
	})
	return rows[:min(n, len(rows))]
}

// tally returns all rows of p with their sums of a value, in an order independent of the
// value.
func tally(p *profile.Profile, value int) []row {
	rows, rowOf := newRows(p)
	// counted holds the last sample, numbered from 1, that each row's total includes.
	counted := make([]int, len(rows))
	var frames []profile.FrameID
	for i, s := range p.Samples {
		frames = p.AppendFrames(frames[:0], s.Stack)
		for depth, f := range frames {
			r := rowOf[f]
			if depth == 0 {
				rows[r].self += s.Values[value]
			}
			if counted[r] != i+1 {
				counted[r] = i + 1
				rows[r].total += s.Values[value]
			}
		}
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
		module := "-"
		if f.Kind != profile.KindMarker {
			module = p.ModuleName(f.Mapping)
		}
		k := key{name: p.GroupName(profile.FrameID(id)), system: p.Functions[f.Function].SystemName, module: module}
		r, ok := index[k]
		if !ok {
			r = len(rows)
			index[k] = r
			rows = append(rows, row{name: k.name, module: module})
		}
		rowOf[id] = r
	}
	return rows, rowOf
}
