// Package folded writes profiles in the folded format: a line for each stack, with frames
// separated by ";", root first, then a space and the stack's value. flamegraph.pl,
// inferno, speedscope and grep read it.
//
// The lines have the format of `profile -f` of the BPF Compiler Collection
// (github.com/iovisor/bcc, tools/profile.py and tools/profile_example.txt). The first frame is the
// task's name, unless no task has one. Optionally, the suffix "_[k]" marks kernel frames, and a frame
// "-" separates user and kernel frames. Inlined functions are ordinary frames,
// optionally marked by "_[i]" as in stackcollapse-perf.pl. Files and lines are omitted,
// because they would split functions. In profiles by thread the task is "comm-pid/tid",
// as in `stackcollapse-perf.pl --tid` of the FlameGraph tools. In profiles by CPU a frame
// "[CPU n]" comes first; in profiles by container, pod or unit, its name precedes the task.
//
// Times are in microseconds, as in bcc's offcputime. A first line "# off-cpu in
// microseconds" states the value and the unit. If no task has a name, it says ", without tasks". Counts
// have it only if their lines alone look like a comparison or another text, or if their first frames look
// like tasks but are functions, or the other way round. Flame graph tools ignore it.
package folded

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/label"
)

// Options configures the lines. The zero value is the format of bcc's `profile -f`.
type Options struct {
	// Annotate adds "_[k]" to the names of kernel frames and "_[i]" to those
	// of other frames that were inlined (-a).
	Annotate bool
	// Delimited puts a frame "-" between user and kernel frames, in stacks
	// that have both (-d).
	Delimited bool
	// Value is the index of the value to print in [profile.Profile.ValueTypes].
	Value int
	// Compare prints the first two values, base and new, in two columns, which
	// flamegraph.pl draws as a differential flame graph.
	Compare bool
}

// values returns the indexes of the values to print.
func (o Options) values() []int {
	if o.Compare {
		return []int{0, 1}
	}
	return []int{o.Value}
}

// Write writes p to w. Stacks of tasks with the same name that look alike share a line.
// Lines are sorted by their frames from the root, so equal profiles produce equal bytes.
//
// Names are untrusted. Control characters and invalid UTF-8 are escaped (`\n`, `\x1b`),
// and ";" becomes ":"; see [plain.FoldedFrame].
func Write(w io.Writer, p *profile.Profile, o Options) error {
	values := o.values()
	for _, v := range values {
		if v < 0 || v >= len(p.ValueTypes) {
			return fmt.Errorf("write folded stacks: no value %d in a profile of %d", v, len(p.ValueTypes))
		}
	}
	t := newTree(p, o)
	out := bufio.NewWriter(w)
	unit, amount := profile.PrintedUnit(p.ValueTypes[values[0]].Unit)
	named := slices.ContainsFunc(p.Samples, func(s profile.Sample) bool { return label.Task(p.Tasks[s.Task]) != "" })
	lines := lines{tree: t, named: named, columns: len(values), amount: amount}
	entries := t.entries(p, values)
	if _, _, ok := profile.ParseUnit(unit); !ok {
		unit = "count"
	}
	var line []byte
	if unit != "count" || lines.ambiguous(entries) {
		line = header(p, values, unit, named)
	}
	if _, err := out.Write(line); err != nil {
		return fmt.Errorf("write folded stacks: %w", err)
	}
	for _, e := range entries {
		if _, err := out.Write(append(lines.line(e), '\n')); err != nil {
			return fmt.Errorf("write folded stacks: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write folded stacks: %w", err)
	}
	return nil
}

// lines makes the lines of entries.
type lines struct {
	*tree
	named   bool // the first frames are tasks
	columns int
	amount  int64 // of a 1 in the columns

	buf  []byte
	path []labelID
}

// line returns the line of e, which is valid until the next call.
func (l *lines) line(e entry) []byte {
	l.buf = l.buf[:0]
	begins := true
	add := func(name string) {
		if !begins {
			l.buf = append(l.buf, ';')
		}
		begins = false
		l.buf = append(l.buf, name...)
	}
	for _, first := range []string{e.cpu, e.group} {
		if first != "" {
			add(first)
		}
	}
	l.path = l.appendPath(l.path[:0], e.node)
	if l.named || len(l.path) == 0 {
		add(e.task)
	}
	for _, name := range slices.Backward(l.path) {
		add(l.labels[name])
	}
	switch text := string(l.buf); {
	case text[0] == '#': // it would begin a comment
		l.buf = append(append(l.buf[:0], `\x23`...), text[1:]...)
	case strings.TrimSpace(text) == "": // it would be no stack
		l.buf = strconv.AppendQuote(l.buf[:0], text)
	}
	for _, n := range e.values[:l.columns] {
		l.buf = append(l.buf, ' ')
		l.buf = strconv.AppendInt(l.buf, profile.Rounded(n, l.amount), 10)
	}
	return l.buf
}

// ambiguous reports whether readers may take the lines of counts for another text, for a comparison,
// whose first line has two numbers, or tasks for functions.
func (l *lines) ambiguous(entries []entry) bool {
	var votes Votes
	grouped := false // the first frames are groups
	for i, e := range entries {
		line := string(l.line(e))
		stack := line
		for range l.columns {
			stack, _, _ = CutNumber(stack)
		}
		if IsSetting(stack) {
			return true
		}
		if _, _, isNumber := CutNumber(stack); isNumber && i == 0 && l.columns == 1 {
			return true
		}
		votes.Add(line, stack)
		grouped = grouped || e.group != ""
	}
	return votes.Text() || votes.Tasks() != l.named && !grouped
}

// header returns the line that states the unit of values, and that there are no tasks unless they are
// named.
func header(p *profile.Profile, values []int, unit string, named bool) []byte {
	names := make([]string, len(values))
	for i, v := range values {
		// A name has no spaces, so that readers can find it.
		names[i] = cmp.Or(strings.ReplaceAll(plain.FoldedFrame(p.ValueTypes[v].Type), " ", "_"), "value")
	}
	tasks := ""
	if !named {
		tasks = ", without tasks"
	}
	return fmt.Appendf(nil, "# %s in %s%s\n", strings.Join(names, ", "), unit, tasks)
}

// entry is a line to write.
type entry struct {
	lineKey
	values [2]int64 // the values to print
}

// lineKey identifies a line.
type lineKey struct {
	cpu   string // empty if not by CPU
	group string // empty without groups
	task  string
	node  nodeID
}

// entries returns the lines of p in order, with values added up.
func (t *tree) entries(p *profile.Profile, values []int) []entry {
	tasks, groups := make([]string, len(p.Tasks)), label.Groups(p)
	for i, task := range p.Tasks {
		tasks[i] = plain.FoldedFrame(label.Task(task))
		if groups[i] != "" {
			groups[i] = plain.FoldedFrame(groups[i])
		}
	}
	index := map[lineKey]int{}
	var entries []entry
	for _, s := range p.Samples {
		k := lineKey{group: groups[s.Task], task: tasks[s.Task], node: t.stacks[s.Stack]}
		k.cpu, _ = label.CPU(s.CPU)
		i, ok := index[k]
		if !ok {
			i = len(entries)
			index[k] = i
			entries = append(entries, entry{lineKey: k})
		}
		for j, v := range values {
			entries[i].values[j] += s.Values[v]
		}
	}
	// A stack may lack this value, such as one of threads that did not wait for a CPU.
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.values == [2]int64{} })
	order := t.order()
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.group, b.group), cmp.Compare(a.task, b.task), cmp.Compare(order[a.node], order[b.node]))
	})
	return entries
}
