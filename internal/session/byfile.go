package session

import (
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile/encode/text"
)

// busiestFiles is how many files the table of them has.
const busiestFiles = 10

// noFile stands in the table for what has to do with no file, or with one that the
// kernel does not tell: the rows add up to all.
const noFile = "(no file, or unknown)"

// byFile returns the lines of a table of what a source measured by file, and an
// empty one after them; none if no sample of its has to do with a file.
func byFile(what subject, from stacks.Source, store *stacks.Store, m mounts.List) []string {
	types := what.valueTypes()
	files := map[uint64][]int64{}
	for sample, value := range store.Samples {
		if sample.Source != from {
			continue
		}
		if files[sample.File] == nil {
			files[sample.File] = make([]int64, len(types))
		}
		for i, n := range what.values(from, value) {
			files[sample.File][i] += n
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
	return append(text.Groups(types, groups, text.GroupOptions{By: "file", Value: what.shown(), Rows: busiestFiles}), "")
}
