package profile

import (
	"math"
	"slices"
)

// Only returns p with only value v, and without samples in which it is 0. It shares the
// tables.
func (p *Profile) Only(v int) *Profile {
	only := *p
	only.ValueTypes = p.ValueTypes[v : v+1 : v+1]
	only.Samples = nil
	for _, s := range p.Samples {
		if s.Values[v] != 0 {
			s.Values = s.Values[v : v+1 : v+1]
			only.Samples = append(only.Samples, s)
		}
	}
	return &only
}

// Diff compares two profiles. The result has two values, "base" and "new": for each stack
// the first values of base and of changed. If normalize is set, base is scaled so that
// both have the same total. Rounding then changes a stack's value by less than 1, and the total
// by at most 0.5.
//
// Stacks are equal if their functions, modules and task names are, since addresses, lines
// and process IDs differ between builds and runs. If either profile lacks modules, the
// names decide. Linker names and source files count if both profiles have them. The metadata is
// changed's.
func Diff(base, changed *Profile, normalize bool) *Profile {
	unit := changed.ValueTypes[0].Unit
	d := differ{
		Builder: NewBuilder(ValueType{Type: "base", Unit: unit}, ValueType{Type: "new", Unit: unit}),
		modules: base.knowsModules() && changed.knowsModules(),
		linked:  base.knows(isLinked) && changed.knows(isLinked),
		files:   base.knows(hasFile) && changed.knows(hasFile),
	}
	d.add(base, func(n int64) []int64 { return []int64{n, 0} })
	d.add(changed, func(n int64) []int64 { return []int64{0, n} })
	p := d.Profile(changed.Meta, changed.Losses)
	if total := base.Total(0); normalize && total != 0 {
		p.scaleFirst(float64(changed.Total(0)) / float64(total))
	}
	return p
}

// scaleFirst multiplies the first values by scale. It rounds their running sum instead of each:
// most stacks of a flat profile have a value of 1, which could become 0.
func (p *Profile) scaleFirst(scale float64) {
	sum, before := 0.0, int64(0)
	for _, s := range p.Samples {
		sum += float64(s.Values[0]) * scale
		now := rounded(sum)
		s.Values[0], before = now-before, now
	}
}

// rounded returns the nearest integer, limited to the maximum.
func rounded(v float64) int64 {
	const limit = 1 << 62
	return int64(math.Round(max(-limit, min(v, limit))))
}

// knowsModules reports whether p has modules of user code.
func (p *Profile) knowsModules() bool {
	return slices.ContainsFunc(p.Frames, func(f Frame) bool { return f.Kind == KindUser && f.Mapping != 0 })
}

// knows reports whether one of p's functions has something that formats can lack.
func (p *Profile) knows(has func(Function) bool) bool { return slices.ContainsFunc(p.Functions, has) }

func isLinked(f Function) bool { return f.SystemName != "" && f.SystemName != f.Name }

func hasFile(f Function) bool { return f.File != "" }

// differ builds the profile of a comparison.
type differ struct {
	*Builder
	// What both profiles have: modules and kinds of code, linker names, source files.
	modules, linked, files bool
}

// add adds the samples of p, converting their first values with values.
func (d differ) add(p *Profile, values func(int64) []int64) {
	frames := make([]FrameID, len(p.Frames))
	for i := 1; i < len(p.Frames); i++ {
		frames[i] = d.Frame(d.comparable(p, FrameID(i)))
	}
	stacks := make([]StackID, len(p.Stacks))
	for i := 1; i < len(p.Stacks); i++ {
		stacks[i] = d.Push(stacks[p.Stacks[i].Parent], frames[p.Stacks[i].Frame])
	}
	for _, s := range p.Samples {
		d.Add(Sample{
			Stack: stacks[s.Stack], Task: d.Task(Task{Comm: p.Tasks[s.Task].Comm}), CPU: -1, Values: values(s.Values[0]),
		})
	}
}

// comparable returns frame id without the properties that differ between builds and runs. A
// frame without a name keeps its address, since it has nothing else.
func (d differ) comparable(p *Profile, id FrameID) Frame {
	if !d.modules {
		name := p.FrameName(id)
		return Frame{Function: d.Function(Function{Name: name, SystemName: name})}
	}
	f := p.Frames[id]
	made := Frame{Kind: f.Kind, Inlined: f.Inlined}
	if f.Mapping != 0 {
		made.Mapping = d.Mapping(Mapping{Path: p.Mappings[f.Mapping].Path})
	}
	if f.Function == 0 {
		made.Address = f.Call() // formats differ in what they show
		return made
	}
	fn := p.Functions[f.Function]
	same := Function{Name: fn.Name, SystemName: fn.Name}
	if d.linked && fn.SystemName != "" {
		same.SystemName = fn.SystemName
	}
	if d.files {
		same.File = fn.File
	}
	made.Function = d.Function(same)
	return made
}
