package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/own"
)

// value is the index of the shown value, the number of samples.
const value = 0

// function identifies a function by name and module.
type function struct{ name, module string }

// row is a function with its samples: those that it owns, or that end in it, and those that contain it.
type row struct {
	function
	self, total int64
}

// process identifies a process, or in profiles with groups a group of them.
type process struct {
	pid   int
	comm  string
	group string // see [profile.Profile.Group]; pid and comm are not set
}

// holds reports whether all that other has belongs to p. All belongs to the zero process.
func (p process) holds(other process) bool {
	return p == process{} || p.group == other.group && p.pid == other.pid
}

// processRow is a process with its samples.
type processRow struct {
	process
	samples int64
}

// stackRow is a stack with its samples, leaf first. Functions count as equal
// regardless of their addresses.
type stackRow struct {
	frames  []frame
	samples int64
}

// frame is a function in a stack, with a description of the place in it.
type frame struct {
	function
	source string // "file:line", "" if unknown
}

// window is a profile with the functions of its frames.
type window struct {
	*profile.Profile
	functions []function // by frame
	processes []process  // by task
	owners    own.Owners
}

// newWindow returns the window of a profile. Native counts each stack for its leaf, even if that is
// an interpreter's function.
func newWindow(p *profile.Profile, native bool) *window {
	owners := own.Of
	if native {
		owners = own.Leaves
	}
	w := &window{p, make([]function, len(p.Frames)), make([]process, len(p.Tasks)), owners(p)}
	for id, task := range p.Tasks {
		if group := p.Group(profile.TaskID(id)); group != "" {
			w.processes[id].group = plain.Terminal(group)
		} else {
			w.processes[id] = process{pid: task.PID, comm: plain.Terminal(task.Comm)}
		}
	}
	for id := 1; id < len(p.Frames); id++ {
		w.functions[id] = functionOf(p, profile.FrameID(id))
	}
	return w
}

// tables compute totals over several windows, which do not share identifiers.
type tables struct {
	windows []*window
	only    process // to include; the zero process for all
}

// samples calls visit for every included sample, with its frames, leaf first.
func (t tables) samples(visit func(w *window, s profile.Sample, frames []profile.FrameID)) {
	var frames []profile.FrameID
	for _, w := range t.windows {
		for _, s := range w.Samples {
			if t.only.holds(w.processes[s.Task]) {
				frames = w.AppendFrames(frames[:0], s.Stack)
				visit(w, s, frames)
			}
		}
	}
}

// whole returns the number of included samples.
func (t tables) whole() (n int64) {
	t.samples(func(_ *window, s profile.Sample, _ []profile.FrameID) { n += s.Values[value] })
	return n
}

// functionOf returns the function of a frame. Frames without a name share one
// function per module.
func functionOf(p *profile.Profile, id profile.FrameID) function {
	f := p.Frames[id]
	made := function{name: plain.Terminal(p.GroupName(id)), module: "-"}
	if f.Kind != profile.KindMarker {
		made.module = plain.Terminal(p.ModuleName(f.Mapping))
	}
	return made
}

// functions returns all functions, sorted by descending self or total samples.
func (t tables) functions(byTotal bool) []row {
	var rows []row
	index := map[function]int{}
	var last []int // for each row, the last sample counted in total, from 1
	ofFrames := map[*window][]int{}
	for _, w := range t.windows {
		rowOf := make([]int, len(w.Frames))
		for id := 1; id < len(w.Frames); id++ {
			f := w.functions[id]
			at, ok := index[f]
			if !ok {
				at = len(rows)
				index[f] = at
				rows, last = append(rows, row{function: f}), append(last, 0)
			}
			rowOf[id] = at
		}
		ofFrames[w] = rowOf
	}
	n := 0
	t.samples(func(w *window, s profile.Sample, frames []profile.FrameID) {
		n++
		if f := w.owners.Frames[s.Stack]; f != 0 {
			rows[ofFrames[w][f]].self += s.Values[value]
		}
		for _, f := range frames {
			at := ofFrames[w][f]
			if last[at] != n {
				last[at] = n
				rows[at].total += s.Values[value]
			}
		}
	})
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.total == 0 })
	slices.SortFunc(rows, func(a, b row) int {
		bySelf, inTotal := cmp.Compare(b.self, a.self), cmp.Compare(b.total, a.total)
		if byTotal {
			bySelf, inTotal = inTotal, bySelf
		}
		return cmp.Or(bySelf, inTotal, cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module))
	})
	return rows
}

// processes returns all processes or groups, sorted by descending samples.
func (t tables) processes() []processRow {
	type key struct {
		pid   int
		group string
	}
	index := map[key]int{}
	var rows []processRow
	t.samples(func(w *window, s profile.Sample, _ []profile.FrameID) {
		p := w.processes[s.Task]
		at, ok := index[key{p.pid, p.group}]
		if !ok {
			at = len(rows)
			index[key{p.pid, p.group}] = at
			rows = append(rows, processRow{process: p})
		}
		rows[at].samples += s.Values[value]
	})
	slices.SortFunc(rows, func(a, b processRow) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.pid, b.pid), cmp.Compare(a.group, b.group))
	})
	return rows
}

// stacks returns the stacks that contain a function, sorted by descending samples.
func (t tables) stacks(of function) []stackRow {
	index := map[string]int{}
	var rows []stackRow
	t.samples(func(w *window, s profile.Sample, ids []profile.FrameID) {
		if !slices.ContainsFunc(ids, func(id profile.FrameID) bool { return w.functions[id] == of }) {
			return
		}
		frames := make([]frame, len(ids))
		for i, id := range ids {
			frames[i] = frame{w.functions[id], source(w.Profile, id)}
		}
		key := keyOf(frames)
		at, ok := index[key]
		if !ok {
			at = len(rows)
			index[key] = at
			rows = append(rows, stackRow{frames: frames})
		}
		rows[at].samples += s.Values[value]
	})
	slices.SortFunc(rows, func(a, b stackRow) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(keyOf(a.frames), keyOf(b.frames)))
	})
	return rows
}

// ofStack returns the number of samples of a stack that contains the function of.
func (t tables) ofStack(of function, frames []frame) int64 {
	key := keyOf(frames)
	for _, r := range t.stacks(of) {
		if keyOf(r.frames) == key {
			return r.samples
		}
	}
	return 0
}

// keyOf returns a key for a stack, made of its functions.
func keyOf(frames []frame) string {
	var b strings.Builder
	for _, f := range frames {
		b.WriteString(f.name)
		b.WriteByte(0) // does not occur in printable names
		b.WriteString(f.module)
		b.WriteByte(0)
	}
	return b.String()
}

// source returns the file and line of a frame, "" if unknown.
func source(p *profile.Profile, id profile.FrameID) string {
	f := p.Frames[id]
	file := p.Functions[f.Function].File
	switch {
	case file == "":
		return ""
	case f.Line == 0:
		return plain.Terminal(file)
	}
	return fmt.Sprintf("%s:%d", plain.Terminal(file), f.Line)
}
