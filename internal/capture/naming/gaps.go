package naming

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/runtimes/known"
	"fulgur/internal/unwind/stackend"
)

// maxGaps limits the files in which stacks end that are counted.
const maxGaps = 1000

// Gaps counts samples that lack functions in silence: callers, because the stack ends too early in a
// file, or the functions of an interpreter whose frames fulgur does not read.
type Gaps struct {
	files, languages map[string]uint64
	// skipped counts the samples of languages whose stacks have generated code. It may keep no
	// frame pointers, and then the walk goes on at a caller further out.
	skipped map[string]uint64
}

// NewGaps returns gaps without samples.
func NewGaps() Gaps { return Gaps{map[string]uint64{}, map[string]uint64{}, map[string]uint64{}} }

// Add adds samples with the names n.
func (g Gaps) Add(n *Names, samples iter.Seq2[stacks.Sample, stacks.Values]) {
	hidden, described := n.foreign()
	for sample, value := range samples {
		trace := n.store.Traces[sample.Trace]
		if file := endsEarly(n.store, trace); file != "" && (len(g.files) < maxGaps || g.files[file] > 0) {
			g.files[file] += value.Samples()
		}
		is := hidden[trace.Leaf]
		if is.described || described[int(trace.PID)] {
			continue
		}
		for _, language := range is.languages {
			g.languages[language] += value.Samples()
		}
		if is.generated != "" {
			g.skipped[is.generated] += value.Samples()
		}
	}
}

// foreign is what a stack has of interpreters whose frames fulgur does not read: the languages, and
// whether a perf map or a jitdump file describes generated code in it.
type foreign struct {
	languages []string
	generated string // the language of the innermost generated code, "" if there is none
	described bool
}

// foreign returns what each stack has of such interpreters, and the processes that describe their
// generated code.
func (n *Names) foreign() (below []foreign, described map[int]bool) {
	// Stacks share their lower parts, which are visited once.
	below, described = make([]foreign, len(n.store.Nodes)), map[int]bool{}
	for i, node := range n.store.Nodes[1:] {
		is := below[node.Parent]
		id := n.store.Frames[node.Frame].Code
		if language := n.store.Languages[id]; known.IsForeign(language) || n.store.NativeOnly && language != "" {
			if !slices.Contains(is.languages, language) {
				is.languages = append(slices.Clip(is.languages), language)
			}
			if code := n.store.Codes[id]; code.Kind == stacks.CodeJIT {
				is.generated = language
				if named(n.found[node.Frame]) {
					is.described, described[code.PID] = true, true
				}
			}
		}
		below[i+1] = is
	}
	return below, described
}

// endsEarly returns the name of the file in which a stack ends although the code has callers,
// "" if there is none.
func endsEarly(store *stacks.Store, trace stacks.Trace) string {
	switch trace.UserEnd {
	case stackend.Broken, stackend.NoTable, stackend.Unsupported, stackend.Register, stackend.NotGrowing:
	default:
		if !trace.Broken || trace.UserEnd == stackend.NotReady {
			return ""
		}
	}
	at, ok := outermost(store, trace.Leaf)
	if !ok {
		return ""
	}
	if file := store.Codes[store.Frames[at].Code].File; file != nil {
		return path.Base(file.Path)
	}
	return ""
}

// Lines returns a line for each interpreter, and for the files in which the most stacks end. of is
// the noun for samples, and remedy returns what shows the functions of a language, or "".
func (g Gaps) Lines(of describe.Noun, remedy func(language string) string) (lines []string) {
	for _, language := range byCount(g.languages) {
		line := fmt.Sprintf("%s: its functions are not shown, %s", language, of.Count(g.languages[language]))
		if shows := remedy(language); shows != "" {
			line += ": " + shows
		}
		if n := g.skipped[language]; n > 0 {
			line += fmt.Sprintf("; code that it generated may hide callers, %s", of.Count(n))
		}
		lines = append(lines, line)
	}
	files := byCount(g.files)
	for _, file := range files[:min(len(files), maxRemedies)] {
		lines = append(lines, fmt.Sprintf("%s: stacks end in it without their callers, %s", plain.Terminal(file), of.Count(g.files[file])))
	}
	if more := len(files) - maxRemedies; more > 0 {
		lines = append(lines, plain.Count(uint64(more), "more file")+" in which stacks end without their callers")
	}
	return lines
}

// byCount returns the keys of counts, the largest count first.
func byCount(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}
