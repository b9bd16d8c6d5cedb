// Package folded writes profiles in the folded format: a line for each stack,
// frames separated by ";" with the root first, a space and the stack's value.
// It is what flamegraph.pl, inferno, speedscope and a grep read.
//
// The lines are those of `profile -f` of the BPF Compiler Collection
// (github.com/iovisor/bcc, tools/profile.py and tools/profile_example.txt):
// the first frame is the task's name, "_[k]" after a name marks the kernel's
// and a frame "-" stands between user and kernel frames, each if asked for.
// Inlined functions are frames as all others, told apart by "_[i]" if asked
// for, as in stackcollapse-perf.pl. There are no files and lines: they would
// split functions.
// Where threads were told apart the task is "comm-pid/tid", as that of
// `stackcollapse-perf.pl --tid` of the FlameGraph tools, and where CPUs were,
// a frame "[CPU n]" comes first.
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

// Options choose what the lines contain. The zero value is what bcc's
// `profile -f` prints.
type Options struct {
	// Annotate adds "_[k]" to the names of kernel frames and "_[i]" to those
	// of other frames that were inlined (-a).
	Annotate bool
	// Delimited puts a frame "-" between user and kernel frames, in stacks
	// that have both (-d).
	Delimited bool
	// Value is the index of the value to print in [profile.Profile]'s
	// ValueTypes.
	Value int
	// Compare prints the first two values, those of a base and of what became
	// of it, in two columns: what flamegraph.pl draws the difference of.
	Compare bool
}

// values are the indexes of the values to print.
func (o Options) values() []int {
	if o.Compare {
		return []int{0, 1}
	}
	return []int{o.Value}
}

// Write writes p to w. Stacks that look alike, of tasks with the same name, share
// one line; the lines are in order of their frames from the root, so
// that equal profiles give equal bytes.
//
// Names are untrusted. Control characters and invalid UTF-8 appear as escapes
// (`\n`, `\x1b`), and ";" as ":"; see [plain.FoldedFrame].
func Write(w io.Writer, p *profile.Profile, o Options) error {
	values := o.values()
	for _, v := range values {
		if v < 0 || v >= len(p.ValueTypes) {
			return fmt.Errorf("write folded stacks: no value %d in a profile of %d", v, len(p.ValueTypes))
		}
	}
	t := newTree(p, o)
	out := bufio.NewWriter(w)
	var line []byte
	var path []labelID
	for _, e := range t.entries(p, values) {
		line = line[:0]
		if e.cpu != "" {
			line = append(line, e.cpu...)
			line = append(line, ';')
		}
		line = append(line, e.task...)
		path = t.appendPath(path[:0], e.node)
		for _, name := range slices.Backward(path) {
			line = append(line, ';')
			line = append(line, t.labels[name]...)
		}
		for i := range values {
			line = append(line, ' ')
			line = strconv.AppendInt(line, e.values[i], 10)
		}
		line = append(line, '\n')
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("write folded stacks: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write folded stacks: %w", err)
	}
	return nil
}

// entry is a line to write.
type entry struct {
	lineKey
	values [2]int64 // of those to print
}

// lineKey is what tells lines apart.
type lineKey struct {
	cpu  string // empty if CPUs are not told apart
	task string
	node nodeID
}

// entries returns the lines of p in order, with values summed.
func (t *tree) entries(p *profile.Profile, values []int) []entry {
	tasks := make([]string, len(p.Tasks))
	for i, task := range p.Tasks {
		tasks[i] = plain.FoldedFrame(label.Task(task))
		if name, ok := strings.CutPrefix(tasks[i], "#"); ok {
			tasks[i] = `\x23` + name // at a line's beginning it would make a comment of it
		}
	}
	index := map[lineKey]int{}
	var entries []entry
	for _, s := range p.Samples {
		k := lineKey{task: tasks[s.Task], node: t.stacks[s.Stack]}
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
	order := t.order()
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.task, b.task), cmp.Compare(order[a.node], order[b.node]))
	})
	return entries
}
