package pprof

import "strings"

// stringTable holds all texts of a profile: its messages refer to them by
// index. The first is the empty one.
type stringTable struct {
	list []string
	ids  map[string]int64
}

func newStringTable() *stringTable {
	return &stringTable{list: []string{""}, ids: map[string]int64{"": 0}}
}

// id returns the index of s, with U+FFFD for what is not UTF-8.
func (t *stringTable) id(s string) int64 {
	s = strings.ToValidUTF8(s, "\uFFFD")
	id, ok := t.ids[s]
	if !ok {
		id = int64(len(t.list))
		t.list = append(t.list, s)
		t.ids[s] = id
	}
	return id
}
