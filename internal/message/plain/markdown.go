package plain

import "strings"

// Code returns s as a code span of Markdown (CommonMark 6.1), whose delimiter is longer than every run
// of backticks in it: it is then neither markup nor a link nor a mention. In a cell of a table,
// GitHub's Markdown takes "\|" for a bar, even in code.
func Code(s string, cell bool) string {
	longest, run := 0, 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	if cell {
		s = strings.ReplaceAll(s, "|", `\|`)
	}
	ticks := strings.Repeat("`", longest+1)
	return ticks + " " + s + " " + ticks
}
