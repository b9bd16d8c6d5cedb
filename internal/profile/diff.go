package profile

import (
	"cmp"
	"math"
	"path"
	"slices"
)

// Only returns p with only the given values, and without samples in which all of them are 0. It
// shares the tables.
func (p *Profile) Only(values ...int) *Profile {
	only := *p
	only.ValueTypes, only.Samples = nil, nil
	for _, v := range values {
		only.ValueTypes = append(only.ValueTypes, p.ValueTypes[v])
	}
	for _, s := range p.Samples {
		if !slices.ContainsFunc(values, func(v int) bool { return s.Values[v] != 0 }) {
			continue
		}
		kept := make([]int64, len(values))
		for i, v := range values {
			kept[i] = s.Values[v]
		}
		s.Values = kept
		only.Samples = append(only.Samples, s)
	}
	return &only
}

// Diff compares two sides of runs. The result has two values, "base" and "new": for each stack
// the sums of the first values of base, multiplied by scale, and of changed. Rounding changes a
// stack's value by less than 1, and the total by at most 0.5; a scale of 1 changes nothing.
// Stacks are equal as in [Align]. The metadata is that of the last profile.
func Diff(base, changed []*Profile, scale float64) *Profile {
	last := changed[len(changed)-1]
	unit := last.ValueTypes[0].Unit
	d := newDiffer(base, changed, ValueType{Type: "base", Unit: unit}, ValueType{Type: "new", Unit: unit})
	for _, p := range base {
		d.add(p, func(values []int64) []int64 { return []int64{values[0], 0} })
	}
	for _, p := range changed {
		d.add(p, func(values []int64) []int64 { return []int64{0, values[0]} })
	}
	p := d.Profile(last.Meta, last.Losses)
	if scale != 1 {
		p.scaleFirst(scale)
	}
	return p
}

// Align returns a profile with the values of all runs: those of the first run of base, then those
// of the second, and so on, then those of changed.
//
// Stacks are equal if the code of their frames is the same in both builds, see [lasting], in the same
// module, and if task names are. Addresses, lines and process IDs differ between builds and runs, and
// a function may be inlined in one build only. Modules are the same if their paths are. If only one
// side has a path, the name of the file without a version decides. If a profile lacks modules,
// the names of functions decide. Linker names and source files count if all profiles have them.
// Functions without symbols are named after addresses, so they are one in a module whose builds differ.
func Align(base, changed []*Profile) *Profile {
	var types []ValueType
	for _, p := range slices.Concat(base, changed) {
		types = append(types, p.ValueTypes...)
	}
	d := newDiffer(base, changed, types...)
	first := 0
	for _, p := range slices.Concat(base, changed) {
		d.add(p, func(values []int64) []int64 {
			all := make([]int64, len(types))
			copy(all[first:], values)
			return all
		})
		first += len(p.ValueTypes)
	}
	last := changed[len(changed)-1]
	return d.Profile(last.Meta, last.Losses)
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
	// What all profiles have: modules and kinds of code, frames of the kernel, linker names, source files.
	modules, kernel, linked, files bool
	// paths has the path of the same module for paths that only one side has, and rebuilt the paths
	// of modules whose builds differ.
	paths   map[string]string
	rebuilt map[string]bool
}

func newDiffer(base, changed []*Profile, types ...ValueType) differ {
	d := differ{Builder: NewBuilder(types...), modules: true, kernel: true, linked: true, files: true}
	for _, p := range slices.Concat(base, changed) {
		d.modules = d.modules && p.knowsModules()
		d.kernel = d.kernel && slices.ContainsFunc(p.Frames, func(f Frame) bool { return f.Kind == KindKernel })
		d.linked = d.linked && p.knows(isLinked)
		d.files = d.files && p.knows(hasFile)
	}
	d.matchModules(base, changed)
	return d
}

// matchModules finds modules that moved, and those that were built again.
func (d *differ) matchModules(base, changed []*Profile) {
	d.paths, d.rebuilt = map[string]string{}, map[string]bool{}
	var has [2]map[string]bool
	for side, runs := range [2][]*Profile{base, changed} {
		has[side] = map[string]bool{}
		for _, p := range runs {
			for _, m := range p.Mappings[1:] {
				has[side][m.Path] = true
			}
		}
	}
	moved := map[string]string{} // by file name
	for side, runs := range [2][]*Profile{changed, base} {
		for _, p := range runs {
			for _, m := range p.Mappings[1:] {
				if !IsFile(m.Path) || has[side][m.Path] { // has is in the other order
					continue
				}
				name := unversioned(path.Base(m.Path))
				if _, ok := moved[name]; !ok {
					moved[name] = m.Path
				}
				d.paths[m.Path] = moved[name]
			}
		}
	}
	builds := map[string]string{}
	for _, p := range slices.Concat(base, changed) {
		for _, m := range p.Mappings[1:] {
			at := d.path(m.Path)
			if other, ok := builds[at]; ok && other != m.BuildID && other != "" && m.BuildID != "" {
				d.rebuilt[at] = true
			}
			builds[at] = cmp.Or(m.BuildID, builds[at])
		}
	}
}

// path returns the path of a module in the comparison.
func (d *differ) path(of string) string {
	if same, ok := d.paths[of]; ok {
		return same
	}
	return of
}

// add adds the samples of p, with values made from their own.
func (d *differ) add(p *Profile, values func([]int64) []int64) {
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
			Stack: stacks[s.Stack], Task: d.Task(Task{Comm: p.Tasks[s.Task].Comm}), CPU: -1, Values: values(s.Values),
		})
	}
}

// comparable returns frame id without the properties that differ between builds and runs. A
// frame without a name keeps its address, since it has nothing else.
func (d *differ) comparable(p *Profile, id FrameID) Frame {
	f := p.Frames[id]
	fn := p.Functions[f.Function]
	if !d.modules {
		name := p.FrameName(id)
		if f.Function != 0 {
			name = lasting(name, fn.File)
		}
		made := Frame{Function: d.Function(Function{Name: name, SystemName: name})}
		if d.kernel && f.Kind == KindKernel {
			made.Kind = f.Kind
		}
		return made
	}
	made := Frame{Kind: f.Kind}
	if f.Mapping != 0 {
		at := d.path(p.Mappings[f.Mapping].Path)
		made.Mapping = d.Mapping(Mapping{Path: at})
		if d.rebuilt[at] && !p.Named(id) {
			made.Function = d.Function(Function{Name: Unnamed[1], SystemName: Unnamed[1]})
			return made
		}
	}
	if f.Function == 0 {
		made.Address = f.Call() // formats differ in what they show
		return made
	}
	name := lasting(fn.Name, fn.File)
	same := Function{Name: name, SystemName: name}
	if d.linked && fn.SystemName != "" && fn.SystemName != fn.Name {
		same.SystemName = lastingLinked(fn.SystemName, name)
	}
	if d.files && fn.File != "" {
		same.File = path.Base(fn.File) // each build may be in another directory
	}
	made.Function = d.Function(same)
	return made
}
