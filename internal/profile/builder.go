package profile

// Builder builds a [Profile], interning everything it is given: equal
// mappings, functions, frames, stacks and tasks get one identifier, and
// samples that agree in all but their values are summed. It is not safe for
// concurrent use.
type Builder struct {
	p         Profile
	mappings  map[Mapping]MappingID
	functions map[Function]FunctionID
	frames    map[Frame]FrameID
	stacks    map[Stack]StackID
	tasks     map[Task]TaskID
	samples   map[sampleKey]int
}

type sampleKey struct {
	stack StackID
	task  TaskID
	cpu   int
	end   End
}

// NewBuilder returns a builder of profiles whose samples have the given
// values.
func NewBuilder(types ...ValueType) *Builder {
	return &Builder{
		p: Profile{
			ValueTypes: types,
			Mappings:   make([]Mapping, 1),
			Functions:  make([]Function, 1),
			Frames:     make([]Frame, 1),
			Stacks:     make([]Stack, 1),
		},
		mappings:  map[Mapping]MappingID{},
		functions: map[Function]FunctionID{},
		frames:    map[Frame]FrameID{},
		stacks:    map[Stack]StackID{},
		tasks:     map[Task]TaskID{},
		samples:   map[sampleKey]int{},
	}
}

// intern returns v's identifier in table, appending it if it is new.
func intern[ID ~uint32, V comparable](table *[]V, ids map[V]ID, v V) ID {
	id, ok := ids[v]
	if !ok {
		id = ID(len(*table))
		*table = append(*table, v)
		ids[v] = id
	}
	return id
}

// Mapping returns the identifier of m.
func (b *Builder) Mapping(m Mapping) MappingID { return intern(&b.p.Mappings, b.mappings, m) }

// Function returns the identifier of f.
func (b *Builder) Function(f Function) FunctionID { return intern(&b.p.Functions, b.functions, f) }

// Frame returns the identifier of f.
func (b *Builder) Frame(f Frame) FrameID { return intern(&b.p.Frames, b.frames, f) }

// Push returns the stack that is frame called from parent; the empty stack
// is parent 0.
func (b *Builder) Push(parent StackID, frame FrameID) StackID {
	return intern(&b.p.Stacks, b.stacks, Stack{Parent: parent, Frame: frame})
}

// Task returns the identifier of t.
func (b *Builder) Task(t Task) TaskID { return intern(&b.p.Tasks, b.tasks, t) }

// Add adds s, summing its values into an earlier sample of the same stack,
// task, CPU and end. It panics if the number of values is not that of the
// builder's value types.
func (b *Builder) Add(s Sample) {
	if len(s.Values) != len(b.p.ValueTypes) {
		panic("profile: sample does not have one value for each value type")
	}
	key := sampleKey{s.Stack, s.Task, s.CPU, s.End}
	i, ok := b.samples[key]
	if !ok {
		i = len(b.p.Samples)
		b.samples[key] = i
		values := make([]int64, len(s.Values))
		s.Values, values = values, s.Values
		b.p.Samples = append(b.p.Samples, s)
		copy(b.p.Samples[i].Values, values)
		return
	}
	for v, n := range s.Values {
		b.p.Samples[i].Values[v] += n
	}
}

// Profile returns the profile built so far, with the given description and
// losses. The builder must not be used afterwards.
func (b *Builder) Profile(m Meta, l Losses) *Profile {
	p := b.p
	p.Meta, p.Losses = m, l
	*b = Builder{} // the interning maps are larger than the profile
	return &p
}
