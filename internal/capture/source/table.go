package source

import (
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
)

// maxRows is the maximum number of rows of a table.
const maxRows = 10

// noFile stands in the table for samples without a file, or whose file the kernel
// does not name, so that the rows add up to the total.
const noFile = "(no file, or unknown)"

// ByFile returns the lines of a table of a subject's samples by file, followed by an
// empty line; nil if no sample has a file. index is the index of the subject's
// source in the run.
func ByFile(what Subject, index uint8, store *stacks.Store, m mounts.List) []string {
	known := false
	for sample := range store.Samples {
		known = known || sample.Source == index && sample.File != 0
	}
	if !known {
		return nil
	}
	return Table(what, index, store, "file", func(s stacks.Sample) string {
		if s.File == 0 {
			return noFile
		}
		return m.Name(store, s.File)
	})
}

// Table returns the lines of a table of a subject's samples by name, followed by an
// empty line; nil if there are no samples. index is the index of the subject's source in
// the run.
func Table(what Subject, index uint8, store *stacks.Store, by string, name func(stacks.Sample) string) []string {
	values := what.Values(nil)
	sums := map[string][]int64{}
	for sample, counted := range store.Samples {
		if sample.Source != index {
			continue
		}
		n := name(sample)
		if sums[n] == nil {
			sums[n] = make([]int64, len(values))
		}
		for i, v := range values {
			sums[n][i] += v.Sum(0, sample.Detail, counted)
		}
	}
	if len(sums) == 0 {
		return nil
	}
	var groups []text.Group
	for n, values := range sums {
		groups = append(groups, text.Group{Name: n, Values: values})
	}
	return append(text.Groups(Types(values), groups, text.GroupOptions{By: by, Value: what.Shown(), Rows: maxRows}), "")
}

// Types returns the types of values.
func Types(values []Value) []profile.ValueType {
	types := make([]profile.ValueType, len(values))
	for i, v := range values {
		types[i] = v.ValueType
	}
	return types
}
