package profile

import (
	"encoding/binary"
	"slices"
	"strings"

	"fulgur/internal/unwind/stackend"
)

// Builder builds a [Profile]. It interns everything: equal mappings, functions, frames,
// stacks, tasks and owners get one ID, and samples that differ only in their values are
// added up. It is not safe for concurrent use.
//
// A profile stays within the limits of this package whatever is added: stacks that exceed
// them end in a marker, [Truncated], but the values of samples are always added.
type Builder struct {
	p         Profile
	mappings  map[Mapping]MappingID
	functions map[Function]FunctionID
	frames    map[Frame]FrameID
	stacks    *Index[Stack, StackID]
	tasks     map[Task]TaskID
	owners    map[Owner]OwnerID
	labels    map[string]LabelsID // by the numbers of the labels in labelRows
	samples   map[sampleKey]int

	// Each label is kept once, in any number of sets.
	labelIDs  map[Label]uint32
	labelRows []Label

	left      budget
	depths    []uint16 // by StackID
	longNames uint64   // number of truncated names
	unlabeled uint64   // number of sets of labels without room
	// Replacements for rows without room, 0 if there was always room. The frame differs
	// from every frame that was read, even if it looks the same.
	noFunction FunctionID
	noFrame    FrameID
	noTask     TaskID // plus one
}

type sampleKey struct {
	stack StackID
	task  TaskID
	cpu   int
	end   stackend.End
}

// NewBuilder returns a builder of profiles whose samples have values of the given types.
func NewBuilder(types ...ValueType) *Builder {
	return &Builder{
		p: Profile{
			ValueTypes: types,
			Mappings:   make([]Mapping, 1),
			Functions:  make([]Function, 1),
			Frames:     make([]Frame, 1),
			Stacks:     make([]Stack, 1),
			Owners:     make([]Owner, 1),
			Labels:     make([]Labels, 1),
		},
		mappings:  map[Mapping]MappingID{},
		functions: map[Function]FunctionID{},
		frames:    map[Frame]FrameID{},
		stacks:    NewIndex[Stack, StackID](Stack.words),
		tasks:     map[Task]TaskID{},
		owners:    map[Owner]OwnerID{{}: 0},
		labels:    map[string]LabelsID{"": 0},
		samples:   map[sampleKey]int{},
		labelIDs:  map[Label]uint32{},
		left:      budget{bytes: MaxTables, frames: MaxFrames},
		depths:    make([]uint16, 1),
	}
}

// Expect makes room for about this many frames and samples. The builder must be empty.
func (b *Builder) Expect(frames, samples int) {
	b.frames = make(map[Frame]FrameID, frames)
	b.p.Frames = slices.Grow(b.p.Frames, frames)
	b.samples = make(map[sampleKey]int, samples)
	b.p.Samples = slices.Grow(b.p.Samples, samples)
}

// add appends v to table and returns its ID.
func add[ID ~uint32, V any](table *[]V, v V) ID {
	*table = append(*table, v)
	return ID(len(*table) - 1)
}

// Mapping returns the ID of m, or 0 if there is no room for another one.
func (b *Builder) Mapping(m Mapping) MappingID {
	b.names(&m.Path, &m.BuildID, &m.GoBuildID, &m.Hash)
	id, ok := b.mappings[m]
	if !ok {
		if !b.left.take(sizeMapping + len(m.Path) + len(m.BuildID) + len(m.GoBuildID) + len(m.Hash)) {
			return 0
		}
		own(&m.Path, &m.BuildID, &m.GoBuildID, &m.Hash)
		id = add[MappingID](&b.p.Mappings, m)
		b.mappings[m] = id
	}
	return id
}

// Function returns the ID of f. If there is no room, it is the ID of a function called
// [Truncated].
func (b *Builder) Function(f Function) FunctionID {
	b.names(&f.Name, &f.SystemName, &f.File)
	id, ok := b.functions[f]
	if !ok {
		if !b.left.take(sizeFunction + len(f.Name) + len(f.SystemName) + len(f.File)) {
			return b.markerFunction()
		}
		own(&f.Name, &f.SystemName, &f.File)
		id = add[FunctionID](&b.p.Functions, f)
		b.functions[f] = id
	}
	return id
}

// Frame returns the ID of f. If there is no room, it is the ID of a marker.
func (b *Builder) Frame(f Frame) FrameID {
	id, ok := b.frames[f]
	if !ok {
		if b.noFunction != 0 && f.Function == b.noFunction || !b.left.take(sizeFrame) {
			return b.marker()
		}
		id = add[FrameID](&b.p.Frames, f)
		b.frames[f] = id
	}
	return id
}

// Push returns the stack of frame called from parent. Parent 0 is the empty stack. If
// parent is truncated, Push returns parent.
func (b *Builder) Push(parent StackID, frame FrameID) StackID {
	if b.IsCut(parent) {
		return parent
	}
	id, ok := b.stacks.Find(b.p.Stacks, Stack{Parent: parent, Frame: frame})
	if ok {
		return id
	}
	if b.depths[parent] == MaxDepth {
		// The marker replaces the last frame, so that reading and writing the profile
		// again does not truncate it again.
		return b.Push(b.p.Stacks[parent].Parent, b.marker())
	}
	if !b.left.take(sizeStack) {
		return b.Cut()
	}
	return b.push(parent, frame)
}

// push adds a stack.
func (b *Builder) push(parent StackID, frame FrameID) StackID {
	id := b.stacks.Add(&b.p.Stacks, Stack{Parent: parent, Frame: frame})
	b.depths = append(b.depths, b.depths[parent]+1)
	return id
}

// IsCut reports whether s ends in a truncation marker. Pushing onto such a stack has no
// effect.
func (b *Builder) IsCut(s StackID) bool {
	return b.noFrame != 0 && b.p.Stacks[s].Frame == b.noFrame
}

// Cut returns a stack that consists only of the truncation marker.
func (b *Builder) Cut() StackID {
	marker := b.marker()
	if id, ok := b.stacks.Find(b.p.Stacks, Stack{Frame: marker}); ok {
		return id
	}
	return b.push(0, marker)
}

// marker returns the frame that replaces truncated ones.
func (b *Builder) marker() FrameID {
	if b.noFrame == 0 {
		b.noFrame = add[FrameID](&b.p.Frames, Frame{Function: b.markerFunction(), Kind: KindMarker})
	}
	return b.noFrame
}

func (b *Builder) markerFunction() FunctionID {
	if b.noFunction == 0 {
		b.noFunction = add[FunctionID](&b.p.Functions, Function{Name: Truncated, SystemName: Truncated})
	}
	return b.noFunction
}

// Task returns the ID of t. If there is no room, it is the ID of a task called
// [Truncated].
func (b *Builder) Task(t Task) TaskID {
	b.names(&t.Comm)
	id, ok := b.tasks[t]
	if !ok {
		if !b.left.take(sizeTask + len(t.Comm)) {
			return b.markerTask()
		}
		own(&t.Comm)
		id = add[TaskID](&b.p.Tasks, t)
		b.tasks[t] = id
	}
	return id
}

// Owner returns the ID of o, or 0 if there is no room for another one.
func (b *Builder) Owner(o Owner) OwnerID {
	b.names(o.fields()...)
	id, ok := b.owners[o]
	if !ok {
		size := sizeOwner
		for _, name := range o.fields() {
			size += len(*name)
		}
		if !b.left.take(size) {
			return 0
		}
		own(o.fields()...)
		id = add[OwnerID](&b.p.Owners, o)
		b.owners[o] = id
	}
	return id
}

// Labels returns the ID of a set of labels, or 0 if there is no room for another one.
func (b *Builder) Labels(l Labels) LabelsID {
	var key []byte
	set := make(Labels, 0, len(l))
	for _, label := range l {
		id, ok := b.label(label)
		if !ok {
			b.unlabeled++
			return 0
		}
		key = binary.NativeEndian.AppendUint32(key, id)
		set = append(set, b.labelRows[id])
	}
	id, ok := b.labels[string(key)]
	if !ok {
		if !b.left.take(sizeLabels + sizeLabelOf*len(set)) {
			b.unlabeled++
			return 0
		}
		id = add[LabelsID](&b.p.Labels, set)
		b.labels[string(key)] = id
	}
	return id
}

// label returns the number of a label, and false if there is no room for another one.
func (b *Builder) label(l Label) (id uint32, ok bool) {
	b.names(&l.Key, &l.Value, &l.Unit)
	if id, ok = b.labelIDs[l]; !ok {
		if !b.left.take(sizeLabel + len(l.Key) + len(l.Value) + len(l.Unit)) {
			return 0, false
		}
		own(&l.Key, &l.Value, &l.Unit)
		id = add[uint32](&b.labelRows, l)
		b.labelIDs[l] = id
	}
	return id, true
}

func (b *Builder) markerTask() TaskID {
	if b.noTask == 0 {
		b.noTask = 1 + add[TaskID](&b.p.Tasks, Task{Comm: Truncated})
	}
	return b.noTask - 1
}

// names truncates names that are too long.
func (b *Builder) names(list ...*string) {
	for _, name := range list {
		if len(*name) > MaxName {
			*name = cutName(*name)
			b.longNames++
		}
	}
}

// own copies names, which would otherwise keep the whole text that contains them in
// memory.
func own(list ...*string) {
	for _, name := range list {
		*name = strings.Clone(*name)
	}
}

// Add adds s. It adds the values to an existing sample with the same stack, task, CPU and
// end, if any. It panics if the number of values differs from the builder's value types.
func (b *Builder) Add(s Sample) {
	if len(s.Values) != len(b.p.ValueTypes) {
		panic("profile: sample does not have one value for each value type")
	}
	i := b.sample(s)
	if b.p.Samples[i].Values == nil {
		b.p.Samples[i].Values = slices.Clone(s.Values)
		return
	}
	for v, n := range s.Values {
		b.p.Samples[i].Values[v] += n
	}
}

// sample returns the index of the sample with s's stack, task, CPU and end. A new one has
// no values. If there is no room, it is a sample with a truncated stack.
func (b *Builder) sample(s Sample) int {
	i, ok := b.samples[sampleKey{s.Stack, s.Task, s.CPU, s.End}]
	if ok {
		return i
	}
	depth := int64(b.depths[s.Stack])
	switch {
	case !b.left.take(sizeSample + 8*len(b.p.ValueTypes)):
		s = Sample{Stack: b.Cut(), Task: b.markerTask(), CPU: -1}
	case depth > b.left.frames:
		s.Stack = b.Cut()
	default:
		b.left.frames -= depth
	}
	key := sampleKey{s.Stack, s.Task, s.CPU, s.End}
	if i, ok = b.samples[key]; ok {
		return i
	}
	i = len(b.p.Samples)
	b.samples[key] = i
	s.Values = nil
	b.p.Samples = append(b.p.Samples, s)
	return i
}

// Profile returns the profile built so far, with the given metadata and losses, to which
// it adds the truncated data. The builder must not be used afterwards.
func (b *Builder) Profile(m Meta, l Losses) *Profile {
	p := b.p
	p.Meta, p.Losses = m, l
	p.Losses[LossLongNames] += b.longNames
	p.Losses[LossUnlabeled] += b.unlabeled
	b.countCut(&p)
	*b = Builder{} // the interning maps are larger than the profile
	return &p
}

// counts returns the index of the value that counts all samples, or -1: "samples", or else the first
// value. A recording that was read from a file has only counts of its faults and events.
func (p *Profile) counts() int {
	if i := slices.Index(p.ValueTypes, ValueType{Type: "samples", Unit: "count"}); i >= 0 {
		return i
	}
	if len(p.ValueTypes) > 0 && p.ValueTypes[0].Unit == "count" {
		return 0
	}
	return -1
}

// SamplesOf returns the index of the value that counts the samples on which value v rests, or -1 if
// there is none. Heap profiles have none: their counts are estimates of more than was sampled.
func (p *Profile) SamplesOf(v int) int {
	switch of := p.ValueTypes[v]; {
	case strings.HasSuffix(of.Type, "_objects"), strings.HasSuffix(of.Type, "_space"):
		return -1
	case of.Unit == "count":
		return v
	}
	return p.counts()
}

// count returns how many occurrences s stands for: its value counts, or 1.
func (s Sample) count(counts int) uint64 {
	if counts >= 0 && s.Values[counts] > 1 {
		return uint64(s.Values[counts])
	}
	return 1
}

// countCut adds the samples of p with truncated stacks to its losses.
func (b *Builder) countCut(p *Profile) {
	if b.noFrame == 0 {
		return
	}
	counts := p.counts()
	for _, s := range p.Samples {
		if !b.IsCut(s.Stack) {
			continue
		}
		n := s.count(counts)
		if p.Stacks[s.Stack].Parent == 0 {
			p.Losses[LossTooMany] += n
		} else {
			p.Losses[LossTooDeep] += n
		}
	}
}
