package firefox

import (
	"slices"

	"fulgur/internal/profile"
)

// none is a missing row in columns of indexes.
const none = int32(-1)

// exactLimit is the limit of exact integers in JSON readers.
const exactLimit = 1 << 53

// tables holds the tables shared by all threads. Rows are added on demand by samples and
// markers, and written at the end.
type tables struct {
	p          *profile.Profile
	source     func(file string) (text string, ok bool)
	categories []category

	strings   []string
	stringIDs map[string]int32

	libs      []lib
	libIDs    map[libKey]int32
	ofMapping []int32 // library by profile.MappingID
	bases     []uint64

	functions   []function
	functionIDs map[functionKey]int32
	natives     []native
	nativeIDs   map[native]int32
	sources     []sourceFile
	sourceIDs   map[string]int32

	frames   []frame
	frameIDs map[frameKey]int32

	stacks []stack
	rows   []int32         // by profile.StackID: its row plus one; 0 is none yet
	notes  map[stack]int32 // the row of a stack with a note on top
	path   []profile.StackID
}

// libKey identifies a library.
type libKey struct{ path, buildID string }

// function is a row of funcTable.
type function struct {
	name, resource, source int32
	line                   int
}

// functionKey identifies a function.
type functionKey struct {
	function profile.FunctionID
	name     string // for a frame without a function, or a label
	lib      int32
}

// native is a row of nativeSymbols.
type native struct {
	lib     int32
	address uint64
	name    int32
}

// sourceFile is a row of sources.
type sourceFile struct {
	name    int32
	content string
	has     bool
}

// frame is a row of frameTable.
type frame struct {
	address  int64 // -1 means none
	lib      int32
	depth    uint8
	category uint8
	sub      uint8
	function int32
	native   int32
	line     int
	column   int
}

// frameKey identifies a frame.
type frameKey struct {
	frame profile.FrameID
	outer int32 // row of the frame into which this one is inlined
}

// stack is a row of stackTable.
type stack struct{ frame, parent int32 }

func newTables(p *profile.Profile, o Options) *tables {
	t := &tables{
		p: p, source: o.Source, categories: newCategories(),
		stringIDs: map[string]int32{}, libIDs: map[libKey]int32{},
		ofMapping: make([]int32, len(p.Mappings)), bases: bases(p),
		functionIDs: map[functionKey]int32{}, nativeIDs: map[native]int32{}, sourceIDs: map[string]int32{},
		frameIDs: map[frameKey]int32{},
		rows:     make([]int32, len(p.Stacks)), notes: map[stack]int32{},
	}
	for i := range t.ofMapping {
		t.ofMapping[i] = none
	}
	return t
}

// bases returns the base address of each mapping: the lowest address of the file, if
// known. Kernel addresses, which are too large for JSON numbers, are relative to the
// lowest one in the profile.
func bases(p *profile.Profile) []uint64 {
	const alignment = 2 << 20
	bases := make([]uint64, len(p.Mappings))
	for i, m := range p.Mappings {
		bases[i] = m.Base
	}
	for _, f := range p.Frames {
		m, call := f.Mapping, f.Call()
		if m != 0 && p.Mappings[m].Base == 0 && call >= exactLimit && (bases[m] == 0 || call < bases[m]) {
			bases[m] = call &^ (alignment - 1)
		}
	}
	return bases
}

// string returns the index of s in stringArray.
func (t *tables) string(s string) int32 { return profile.Intern(&t.strings, t.stringIDs, s) }

// row returns the row of a point's stack.
func (t *tables) row(p point) int32 { return t.stack(p.stack) }

// stack returns the row of stack s. It makes the rows of its callers first, as the
// format demands.
func (t *tables) stack(s profile.StackID) int32 {
	t.path = t.path[:0]
	for s != 0 && t.rows[s] == 0 {
		t.path = append(t.path, s)
		s = t.p.Stacks[s].Parent
	}
	row := none
	if s != 0 {
		row = t.rows[s] - 1
	}
	for _, s := range slices.Backward(t.path) {
		outer := none
		if row != none {
			outer = t.stacks[row].frame
		}
		t.stacks = append(t.stacks, stack{t.frame(t.p.Stacks[s].Frame, outer), row})
		row = int32(len(t.stacks) - 1)
		t.rows[s] = row + 1
	}
	return row
}

// label returns the row of a frame that is a note rather than code.
func (t *tables) label(name string, category, sub int) int32 {
	t.frames = append(t.frames, frame{
		address: -1, lib: none, native: none, category: uint8(category), sub: uint8(sub),
		function: t.functionRow(functionKey{name: name, lib: none}),
	})
	return int32(len(t.frames) - 1)
}

// labeled returns the row of a stack with a frame on top.
func (t *tables) labeled(s stack) int32 {
	row, ok := t.notes[s]
	if !ok {
		row = int32(len(t.stacks))
		t.notes[s] = row
		t.stacks = append(t.stacks, s)
	}
	return row
}

// subcategory returns the index of a subcategory, adding it if it is new. There is room
// for 255.
func (t *tables) subcategory(category int, name string) int {
	c := &t.categories[category]
	i := slices.Index(c.Subcategories, name)
	if i < 0 && len(c.Subcategories) <= 255 {
		c.Subcategories = append(c.Subcategories, name)
		i = len(c.Subcategories) - 1
	}
	return max(i, 0)
}

// frame returns the row of a frame. If it is inlined, it is inlined into the
// frame of row outer.
func (t *tables) frame(id profile.FrameID, outer int32) int32 {
	f := t.p.Frames[id]
	if !f.Inlined {
		outer = none
	}
	key := frameKey{id, outer}
	row, ok := t.frameIDs[key]
	if ok {
		return row
	}
	row = int32(len(t.frames))
	t.frameIDs[key] = row
	made := frame{address: -1, lib: t.lib(f.Mapping), native: none, category: uint8(categoryOf(f)), line: f.Line, column: f.Column}
	made.function = t.function(id, f, made.lib)
	base := t.bases[f.Mapping]
	if call := f.Call(); made.lib != none && call >= base && call-base < exactLimit {
		made.address = int64(call - base)
	}
	switch start := f.Address - f.Offset; {
	case outer != none:
		made.native = t.frames[outer].native
		made.depth = uint8(min(int(t.frames[outer].depth)+1, 255))
	case f.Function != 0 && made.address >= 0 && start >= base && start-base <= uint64(made.address):
		made.native = t.native(native{made.lib, start - base, t.functions[made.function].name})
	}
	t.frames = append(t.frames, made)
	return row
}

func (t *tables) native(n native) int32 { return profile.Intern(&t.natives, t.nativeIDs, n) }

// function returns the row of a frame's function.
func (t *tables) function(id profile.FrameID, f profile.Frame, lib int32) int32 {
	if f.Function == 0 {
		return t.functionRow(functionKey{name: t.p.FrameName(id), lib: lib})
	}
	return t.functionRow(functionKey{function: f.Function, lib: lib})
}

func (t *tables) functionRow(key functionKey) int32 {
	id, ok := t.functionIDs[key]
	if ok {
		return id
	}
	id = int32(len(t.functions))
	t.functionIDs[key] = id
	made := function{name: t.string(key.name), resource: key.lib, source: none} // a resource for each library
	if key.function != 0 {
		f := t.p.Functions[key.function]
		made.name, made.line = t.string(f.Name), f.StartLine
		if f.File != "" {
			made.source = t.sourceFile(f.File)
		}
	}
	t.functions = append(t.functions, made)
	return id
}

func (t *tables) sourceFile(name string) int32 {
	id, ok := t.sourceIDs[name]
	if !ok {
		id = int32(len(t.sources))
		t.sourceIDs[name] = id
		made := sourceFile{name: t.string(name)}
		if t.source != nil {
			made.content, made.has = t.source(name)
		}
		t.sources = append(t.sources, made)
	}
	return id
}
