package pprof

import (
	"strings"

	"fulgur/internal/profile"
)

// stringTable holds the strings of a profile, to which its messages refer by index. The
// first is empty.
type stringTable struct {
	list []string
	ids  map[string]int64
}

func newStringTable() *stringTable {
	return &stringTable{list: []string{""}, ids: map[string]int64{"": 0}}
}

// id returns the index of s, with invalid UTF-8 replaced by U+FFFD.
func (t *stringTable) id(s string) int64 {
	return profile.Intern(&t.list, t.ids, strings.ToValidUTF8(s, "\uFFFD"))
}
