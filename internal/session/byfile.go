package session

import (
	"fulgur/internal/encode/text"
	"fulgur/internal/stacks"
)

// busiestFiles is how many files the table of them has.
const busiestFiles = 10

// byFile returns the lines of a table of what a source measured by file, and an
// empty one after them; none if no sample of its has to do with a file.
func byFile(what subject, from stacks.Source, store *stacks.Store, m mounts) []string {
	types := what.valueTypes()
	files := map[uint64][]int64{}
	for sample, value := range store.Samples {
		if sample.File == 0 || sample.Source != from {
			continue
		}
		if files[sample.File] == nil {
			files[sample.File] = make([]int64, len(types))
		}
		for i, n := range what.values(from, value) {
			files[sample.File][i] += n
		}
	}
	if len(files) == 0 {
		return nil
	}
	var groups []text.Group
	for id, values := range files {
		groups = append(groups, text.Group{Name: m.name(store, id), Values: values})
	}
	return append(text.Groups(types, groups, text.GroupOptions{By: "file", Value: what.shown(), Rows: busiestFiles}), "")
}
