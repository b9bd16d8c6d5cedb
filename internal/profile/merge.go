package profile

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Merger adds up profiles. Equal stacks of equal tasks become one sample. It keeps only their sum, within
// the limits of this package, so its memory does not depend on the number of profiles. It is not safe for
// concurrent use.
//
// Files are the same if they have the same build ID or, without one, the same path. Addresses in
// them are the files' own, so it does not matter where processes mapped them.
//
// IDs of processes and CPUs, and addresses of the kernel and of generated code, mean nothing on another
// host. If profiles state different hosts, the sum has none of them.
type Merger struct {
	// WithoutIDs leaves these out of the sum of one host, too: each run has processes of its own.
	WithoutIDs bool

	made      *Collector
	names     []string // of the values
	types     []ValueType
	first     string // the name of the first profile
	meta      Meta
	losses    Losses
	published map[int][]Attribute
	programs  map[int]string
	files     map[mergedFile]MappingID
	anonymous bool // without what means nothing on another host
	hosts     bool // several
}

// mergedFile identifies the file of a mapping. Addresses in placed mappings depend on more than the file.
type mergedFile struct {
	id, goBuildID, hash        string
	size, offset, base, linked uint64
	placed                     bool
}

// identity returns what identifies the file of m.
func (m Mapping) identity() mergedFile {
	f := mergedFile{id: "build ID " + m.BuildID, goBuildID: m.GoBuildID, hash: m.Hash, base: m.Base, linked: m.Linked, placed: m.Placed}
	if m.BuildID == "" {
		f.id = "path " + m.Path
	}
	if m.Placed {
		f.size, f.offset = m.Limit-m.Start, m.Offset
	}
	return f
}

// MismatchError says that a profile cannot be added to another one: they are of different kinds.
type MismatchError struct {
	First, Other string // names of the profiles
	Have, Want   string // what Other and First have
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s has %s, and %s has %s: profiles of different kinds cannot be added up", e.First, e.Want, e.Other, e.Have)
}

// Add adds p, whose name is for errors. It returns a [MismatchError] if p is of another kind than the first
// profile, and an error if the sums are too large. After an error, the merger must not be used.
func (m *Merger) Add(p *Profile, name string) error {
	if m.made == nil {
		m.first, m.meta = name, p.Meta
		m.names, m.types = p.ValueNames(), slices.Clone(p.ValueTypes)
		m.anonymous = m.WithoutIDs
		m.begin()
	} else {
		if err := m.check(p, name); err != nil {
			return err
		}
		if !m.anonymous && m.meta.Host != "" && p.Meta.Host != "" && m.meta.Host != p.Meta.Host {
			if err := m.anonymize(); err != nil {
				return err
			}
		}
		m.meta = m.meta.plus(p.Meta)
	}
	m.losses = m.losses.Plus(p.Losses)
	if !m.anonymous {
		addEqual(m.published, p.Published, func(a, b []Attribute) bool { return reflect.DeepEqual(a, b) })
		addEqual(m.programs, p.Executables, func(a, b string) bool { return a == b })
	}
	m.add(p)
	return m.made.Err()
}

// SeveralHosts reports whether the profiles state different hosts.
func (m *Merger) SeveralHosts() bool { return m.hosts }

// begin begins an empty sum.
func (m *Merger) begin() {
	m.made = NewCollector(m.types...)
	m.published, m.programs, m.files = map[int][]Attribute{}, map[int]string{}, map[mergedFile]MappingID{}
}

// anonymize removes from the sum what means nothing on another host.
func (m *Merger) anonymize() error {
	sum := m.made.Profile(Meta{}, Losses{})
	m.begin()
	m.losses = m.losses.Plus(sum.Losses)
	m.anonymous, m.hosts = true, true
	m.add(sum)
	return m.made.Err()
}

// check returns an error if p is of another kind than the first profile.
func (m *Merger) check(p *Profile, name string) error {
	e := &MismatchError{First: m.first, Other: name, Want: kindOf(m.types), Have: kindOf(p.ValueTypes)}
	if e.Want != e.Have {
		return e
	}
	a, b := m.meta.Every.Of, p.Meta.Every.Of
	if a != b && a != (ValueType{}) && b != (ValueType{}) {
		e.Want, e.Have = "a sample for every amount of "+a.described(), "one for every amount of "+b.described()
		return e
	}
	return nil
}

// kindOf describes the values of a profile in any order.
func kindOf(types []ValueType) string {
	names := make([]string, len(types))
	for i, v := range types {
		names[i] = v.described()
	}
	if len(names) == 0 {
		return "no values"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// described returns the type with its unit, unless that is a count.
func (v ValueType) described() string {
	if v.Unit == "" || v.Unit == "count" {
		return v.Type
	}
	return v.Type + " (" + v.Unit + ")"
}

// addEqual adds what is known of the processes of another profile. It forgets a process of which they
// know different things: the number stands for two processes.
func addEqual[T any](all, more map[int]T, equal func(a, b T) bool) {
	for pid, b := range more {
		if a, ok := all[pid]; ok && !equal(a, b) {
			var unknown T
			all[pid] = unknown
			continue
		}
		all[pid] = b
	}
}

// add adds the tables and samples of p.
func (m *Merger) add(p *Profile) {
	frames := m.frames(p)
	stacks := make([]StackID, len(p.Stacks))
	for i := 1; i < len(p.Stacks); i++ {
		stacks[i] = m.made.Push(stacks[p.Stacks[i].Parent], frames[p.Stacks[i].Frame])
	}
	tasks := m.tasks(p)
	column := make([]int, len(p.ValueTypes))
	for v, name := range p.ValueNames() {
		column[v] = slices.Index(m.names, name)
	}
	for _, s := range p.Samples {
		at := Sample{Stack: stacks[s.Stack], Task: tasks[s.Task], CPU: s.CPU, End: s.End}
		if m.anonymous {
			at.CPU = -1
		}
		for v, n := range s.Values {
			m.made.Count(at, column[v], n)
		}
	}
}

// frames adds the frames of p, with functions and mappings, and returns their IDs in the sum.
func (m *Merger) frames(p *Profile) []FrameID {
	mappings := make([]MappingID, len(p.Mappings))
	for i := 1; i < len(p.Mappings); i++ {
		mappings[i] = m.mapping(p.Mappings[i])
	}
	functions := make([]FunctionID, len(p.Functions))
	for i := 1; i < len(p.Functions); i++ {
		functions[i] = m.made.Function(p.Functions[i])
	}
	frames := make([]FrameID, len(p.Frames))
	for i := 1; i < len(p.Frames); i++ {
		f := p.Frames[i]
		if m.anonymous && p.Named(FrameID(i)) && (f.Kind == KindKernel || f.Kind == KindJIT) {
			f.Address, f.Return, f.AtFunction = 0, false, true
		}
		f.Mapping, f.Function = mappings[f.Mapping], functions[f.Function]
		frames[i] = m.made.Frame(f)
	}
	return frames
}

// mapping adds a mapping, or returns an earlier one of the same file.
func (m *Merger) mapping(of Mapping) MappingID {
	key := of.identity()
	id, ok := m.files[key]
	if !ok {
		id = m.made.Mapping(of)
		m.files[key] = id
		return id
	}
	if int(id) < len(m.made.p.Mappings) && id != 0 {
		// What is not in the key may be missing in the first one.
		known := &m.made.p.Mappings[id]
		known.Main = known.Main && of.Main
		known.Looked &= of.Looked
	}
	return id
}

// tasks adds the tasks of p, with owners and labels, and returns their IDs in the sum.
func (m *Merger) tasks(p *Profile) []TaskID {
	tasks := make([]TaskID, len(p.Tasks))
	for i, t := range p.Tasks {
		if t.Owner != 0 {
			t.Owner = m.made.Owner(p.Owners[t.Owner])
		}
		if t.Labels != 0 {
			t.Labels = m.made.Labels(p.Labels[t.Labels])
		}
		if m.anonymous {
			t.PID, t.TID = 0, 0
		}
		tasks[i] = m.made.Task(t)
	}
	return tasks
}

// Profile returns the sum. The merger must not be used afterwards.
func (m *Merger) Profile() *Profile {
	if m.made == nil {
		m.begin()
	}
	// Profiles share functions, so the number of functions without names has no sum.
	m.losses[LossUnresolvedFrames] = 0
	if m.anonymous {
		m.meta.PerCPU = false
		m.meta.Slowest = slices.Clone(m.meta.Slowest)
		for i := range m.meta.Slowest {
			m.meta.Slowest[i].PID, m.meta.Slowest[i].TID = 0, 0
		}
	}
	p := m.made.Profile(m.meta, m.losses)
	maps.DeleteFunc(m.published, func(_ int, a []Attribute) bool { return len(a) == 0 })
	maps.DeleteFunc(m.programs, func(_ int, path string) bool { return path == "" })
	p.Published, p.Executables = m.published, m.programs
	return p
}

// plus returns the description of the runs a and b together: what they have in common, the earlier
// start, and the sum of the durations, as pprof has it.
func (a Meta) plus(b Meta) Meta {
	sum := a
	sum.Converted = a.Converted || b.Converted
	for _, field := range []struct{ sum, of *string }{
		{&sum.Command, &b.Command}, {&sum.Host, &b.Host}, {&sum.Kernel, &b.Kernel}, {&sum.Arch, &b.Arch}, {&sum.CPUName, &b.CPUName},
		{&sum.Event, &b.Event}, {&sum.Value, &b.Value}, {&sum.Scope, &b.Scope}, {&sum.DocURL, &b.DocURL},
		{&sum.DropFrames, &b.DropFrames}, {&sum.KeepFrames, &b.KeepFrames},
	} {
		*field.sum = common(*field.sum, *field.of)
	}
	sum.CPUs, sum.Memory = common(a.CPUs, b.CPUs), common(a.Memory, b.Memory)
	if sum.Start.IsZero() || !b.Start.IsZero() && b.Start.Before(sum.Start) {
		sum.Start = b.Start
	}
	if sum.Duration += b.Duration; sum.Duration < 0 { // it does not fit
		sum.Duration = 0
	}
	sum.Frequency, sum.Period = common(a.Frequency, b.Frequency), common(a.Period, b.Period)
	sum.RequestedFrequency, sum.Reduction = max(a.RequestedFrequency, b.RequestedFrequency), max(a.Reduction, b.Reduction)
	sum.NamesOmitted = a.NamesOmitted || b.NamesOmitted
	sum.ValueGuessed = a.ValueGuessed || b.ValueGuessed
	sum.Every = Interval{Of: cmp.Or(a.Every.Of, b.Every.Of), Amount: common(a.Every.Amount, b.Every.Amount)}
	if sum.Every.Amount == 0 {
		sum.Every = Interval{}
	}
	sum.Comments, sum.Unmeasured = union(a.Comments, b.Comments), union(a.Unmeasured, b.Unmeasured)
	sum.PerCPU = a.PerCPU || b.PerCPU
	if a.Grouping != b.Grouping || a.GroupLabel != b.GroupLabel {
		sum.Grouping, sum.GroupLabel = GroupNone, ""
	}
	sum.Slowest = Slowest(slices.Concat(a.Slowest, b.Slowest))
	sum.Stripped = a.Stripped.plus(b.Stripped)
	return sum
}

// common returns what a and b both are, or the zero value.
func common[T comparable](a, b T) (none T) {
	if a == b {
		return a
	}
	return none
}

// union returns the lines of a and those of b that are not in a.
func union(a, b []string) []string {
	if slices.Equal(a, b) {
		return a
	}
	known := map[string]bool{}
	for _, line := range a {
		known[line] = true
	}
	all := slices.Clone(a)
	for _, line := range b {
		if !known[line] {
			known[line] = true
			all = append(all, line)
		}
	}
	return ShortComments(all)
}

// maxStripped is the number of files without symbols that a sum names.
const maxStripped = 20

// plus returns the files of two profiles.
func (a StrippedFiles) plus(b StrippedFiles) StrippedFiles {
	sum := StrippedFiles{Files: slices.Clone(a.Files), Omitted: max(a.Omitted, b.Omitted)}
	for _, f := range b.Files {
		i := slices.IndexFunc(sum.Files, func(g Stripped) bool { return g.Path == f.Path && g.BuildID == f.BuildID && g.Exports == f.Exports })
		if i < 0 {
			sum.Files = append(sum.Files, f)
			continue
		}
		sum.Files[i].Samples += f.Samples
	}
	slices.SortStableFunc(sum.Files, func(f, g Stripped) int { return cmp.Compare(g.Samples, f.Samples) })
	if more := len(sum.Files) - maxStripped; more > 0 {
		sum.Files, sum.Omitted = sum.Files[:maxStripped], sum.Omitted+more
	}
	return sum
}
