package report

import (
	"cmp"
	"fmt"
	"slices"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/own"
)

// The notes in place of a caller and of a callee.
const (
	outermost = "[outermost]" // the function has no caller in the stack
	itself    = "[itself]"    // the stack ends in the function
)

// place names a frame in tables.
type place struct{ function, module string }

func (a *asked) place(id profile.FrameID) place {
	if f := a.Frames[id]; f.Kind != profile.KindMarker {
		return place{a.GroupName(id), a.ModuleName(f.Mapping)}
	}
	return place{function: a.FrameName(id)}
}

// belongs reports whether a frame is of the function that the question is about.
func (a *asked) belongs(id profile.FrameID) bool { return len(a.is) > 0 && a.is[id] }

// stacks calls f for each stack that contains the function, or for each stack if the question is about none,
// with its frames, leaf first, and its sum of the value. It counts the function's own amounts. Wakers are no part
// of stacks.
func (a *asked) stacks(f func(id profile.StackID, path []profile.FrameID, n int64)) {
	sums := map[profile.StackID]int64{}
	for _, s := range a.Samples {
		sums[a.waiters[s.Stack]] += s.Values[a.value]
	}
	rows, seen, path := map[place]*Row{}, map[place]bool{}, []profile.FrameID(nil)
	for stack, n := range sums {
		path = a.AppendFrames(path[:0], stack)
		if n == 0 || len(path) == 0 {
			continue
		}
		clear(seen)
		for _, id := range path {
			if !a.belongs(id) {
				continue
			}
			at := a.place(id)
			if rows[at] == nil {
				rows[at] = &Row{Function: at.function, Module: at.module}
			}
			if !seen[at] {
				rows[at].Amount += n
			}
			seen[at] = true
		}
		if id := a.owners.Frames[stack]; a.belongs(id) {
			rows[a.place(id)].Self += n
		}
		if a.is == nil || len(seen) > 0 {
			f(stack, path, n)
		}
		if len(seen) > 0 {
			a.function += n
		}
	}
	for _, row := range rows {
		a.Functions = append(a.Functions, *row)
	}
}

// functions lists the functions.
func (a *asked) functions() {
	for _, f := range text.HottestOf(a.Profile, len(a.Frames), a.value, a.native).Functions {
		a.Rows = append(a.Rows, Row{Function: f.Name, Module: f.Module, Self: f.Self, Amount: f.Total})
	}
}

// neighbors lists the frames that are some steps towards the root from the function. A stack counts once for
// each. none stands for the frame beyond the end of a stack.
func (a *asked) neighbors(steps int, none string) {
	sums, seen := map[place]int64{}, map[place]bool{}
	a.stacks(func(_ profile.StackID, path []profile.FrameID, n int64) {
		clear(seen)
		for i, id := range path {
			if !a.is[id] {
				continue
			}
			at := place{function: none}
			if j := i + steps; j >= 0 && j < len(path) {
				at = a.place(path[j])
			}
			if !seen[at] {
				sums[at] += n
			}
			seen[at] = true
		}
	})
	for at, n := range sums {
		a.Rows = append(a.Rows, Row{Function: at.function, Module: at.module, Amount: n})
	}
}

func (a *asked) callers() { a.neighbors(1, outermost) }

func (a *asked) callees() { a.neighbors(-1, itself) }

// paths lists the stacks. Those with the same functions are one.
func (a *asked) paths() {
	same, sums := a.sameFunctions(), map[profile.StackID]int64{}
	a.stacks(func(id profile.StackID, _ []profile.FrameID, n int64) { sums[same[id]] += n })
	for id, n := range sums {
		row := Row{Amount: n}
		for _, frame := range slices.Backward(a.AppendFrames(nil, id)) {
			row.Frames = append(row.Frames, plain.Terminal(a.FrameName(frame)))
		}
		a.Rows = append(a.Rows, row)
	}
}

// threads lists the threads, or the processes in profiles without threads, with their amounts of all values.
func (a *asked) threads() {
	type id struct {
		pid, tid int
		comm     string
	}
	index := map[id]int{}
	for _, s := range a.Samples {
		t := a.Tasks[s.Task]
		i, ok := index[id{t.PID, t.TID, t.Comm}]
		if !ok {
			i = len(a.Rows)
			index[id{t.PID, t.TID, t.Comm}] = i
			a.Rows = append(a.Rows, Row{Process: t.PID, Thread: t.TID, Task: t.Comm, Values: map[string]int64{}})
		}
		a.Rows[i].Amount += s.Values[a.value]
		for v, n := range s.Values {
			a.Rows[i].Values[plain.Terminal(a.ValueTypes[v].Type)] += n
		}
	}
}

// waits lists the reasons of waits by the innermost function of a program.
func (a *asked) waits() {
	type wait struct {
		reason string
		in     place
	}
	sums, inner := map[wait]int64{}, own.Innermost(a.Profile).Frames
	for _, s := range a.Samples {
		waiter := a.waiters[s.Stack]
		leaf := a.Stacks[waiter].Frame
		if leaf == 0 || a.Frames[leaf].Kind != profile.KindMarker {
			continue
		}
		w := wait{reason: a.FrameName(leaf)}
		if id := inner[waiter]; id != 0 {
			w.in = a.place(id)
		}
		sums[w] += s.Values[a.value]
	}
	for w, n := range sums {
		a.Rows = append(a.Rows, Row{Reason: w.reason, Function: w.in.function, Module: w.in.module, Amount: n})
	}
}

// lines lists the lines of the function.
func (a *asked) lines() {
	for at, w := range a.annotated().Lines {
		a.Rows = append(a.Rows, Row{File: at.File, Line: at.Number, Self: w.Self, Amount: w.Total})
	}
}

// instructions lists the function's instructions, with their text where the code is at hand, and otherwise their addresses.
func (a *asked) instructions() {
	places := a.annotated().Places
	var found []code.Assembly
	if a.choice.Assembly != nil {
		found = a.choice.Assembly(places)
	}
	type at struct {
		mapping profile.MappingID
		address uint64
	}
	shown := map[at]bool{}
	for _, of := range found {
		module := a.ModuleName(of.Mapping)
		if of.Problem != nil {
			a.Notes = append(a.Notes, plain.Terminal(module)+": "+plain.Error(of.Problem))
		}
		for _, in := range of.Instructions {
			hit := false
			for address := range of.Places {
				if address-in.Address < uint64(in.Size) {
					shown[at{of.Mapping, address}] = true
					hit = true
				}
			}
			if hit {
				a.Rows = append(a.Rows, Row{
					Address: fmt.Sprintf("%#x", in.Address), Text: in.Text, File: in.File, Line: in.Line, Module: module, Self: in.Self, Amount: in.Total,
				})
			}
		}
	}
	for of, w := range places {
		if !shown[at{of.Mapping, of.Address}] {
			a.Rows = append(a.Rows, Row{Address: fmt.Sprintf("%#x", of.Address), Module: a.ModuleName(of.Mapping), Self: w.Self, Amount: w.Total})
		}
	}
}

// annotated attributes the value to the lines and instructions of the function.
func (a *asked) annotated() annotate.Counts {
	a.stacks(func(profile.StackID, []profile.FrameID, int64) {})
	return annotate.Function(a.Profile, func(id profile.FrameID) bool { return a.is[id] }, annotate.Options{Value: a.value})
}

// finish sorts and completes the first n rows and functions, and drops the others.
func (a *asked) finish(n int) {
	a.Rows = slices.DeleteFunc(a.Rows, func(r Row) bool { return r.Amount == 0 && r.Self == 0 && len(r.Values) == 0 && len(r.Over) == 0 })
	for _, rows := range [][]Row{a.Rows, a.Functions} {
		slices.SortFunc(rows, func(x, y Row) int {
			return cmp.Or(cmp.Compare(max(y.Self, -y.Self), max(x.Self, -x.Self)), cmp.Compare(max(y.Amount, -y.Amount), max(x.Amount, -x.Amount)),
				cmp.Compare(x.Function, y.Function), cmp.Compare(x.Module, y.Module), cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line),
				cmp.Compare(x.Address, y.Address), cmp.Compare(x.Process, y.Process), cmp.Compare(x.Thread, y.Thread), cmp.Compare(x.Task, y.Task),
				cmp.Compare(x.Reason, y.Reason), slices.Compare(x.Frames, y.Frames))
		})
	}
	a.More = max(len(a.Rows)-n, 0)
	a.Rows = a.Rows[:len(a.Rows)-a.More]
	a.MoreFunctions = max(len(a.Functions)-n, 0)
	a.Functions = a.Functions[:len(a.Functions)-a.MoreFunctions]
	for _, rows := range [][]Row{a.Rows, a.Functions} {
		for i := range rows {
			a.complete(&rows[i])
		}
	}
}

// complete adds the shares to a row, and makes its names printable.
func (a *asked) complete(r *Row) {
	for _, name := range []*string{&r.Text, &r.Function, &r.Module, &r.File, &r.Task, &r.Reason} {
		if *name != "" {
			*name = plain.Terminal(*name)
		}
	}
	if a.whole > 0 {
		r.SelfShare, r.Share = a.share(r.Self), a.share(r.Amount)
	}
	if a.function != 0 {
		r.Part = float64(r.Amount) / float64(a.function)
	}
}
