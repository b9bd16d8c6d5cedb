package source

import (
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
)

// busiestFiles is how many files the table of them has.
const busiestFiles = 10

// noFile stands in the table for samples without a file, or with one that the kernel
// does not name: the rows add up to all.
const noFile = "(no file, or unknown)"

// ByFile returns the lines of a table of a subject's samples by file, and an empty line
// after them; none if no sample has a file. index is the index of the subject's source
// in the run.
func ByFile(what Subject, index uint8, store *stacks.Store, m mounts.List) []string {
	values := what.Values()
	files := map[uint64][]int64{}
	for sample, counted := range store.Samples {
		if sample.Source != index {
			continue
		}
		if files[sample.File] == nil {
			files[sample.File] = make([]int64, len(values))
		}
		for i, v := range values {
			files[sample.File][i] += v.Sum(0, counted)
		}
	}
	if _, ok := files[0]; len(files) == 0 || ok && len(files) == 1 {
		return nil
	}
	var groups []text.Group
	for id, values := range files {
		name := noFile
		if id != 0 {
			name = m.Name(store, id)
		}
		groups = append(groups, text.Group{Name: name, Values: values})
	}
	return append(text.Groups(Types(values), groups, text.GroupOptions{By: "file", Value: what.Shown(), Rows: busiestFiles}), "")
}

// Types returns the types of values.
func Types(values []Value) []profile.ValueType {
	types := make([]profile.ValueType, len(values))
	for i, v := range values {
		types[i] = v.ValueType
	}
	return types
}
