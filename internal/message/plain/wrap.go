package plain

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks lines of text that are longer than the given number of characters at spaces.
// The rest of a line is indented by 4 more than its beginning. Words are never cut. With 0
// columns it returns text.
func Wrap(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		indent := len(body) - len(strings.TrimLeft(body, " "))
		rest := strings.Repeat(" ", min(indent+4, columns/2))
		for utf8.RuneCountInString(body) > columns {
			first, more, ok := cutAt(body, columns, indent)
			if !ok {
				break
			}
			b.WriteString(first + "\n")
			body, indent = rest+more, len(rest)
		}
		b.WriteString(body)
		if strings.HasSuffix(line, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// cutAt cuts a line at the last space that leaves at most the given number of characters,
// or at the first one, in either case after the indentation.
func cutAt(line string, columns, indent int) (first, rest string, ok bool) {
	at, n := -1, 0
	for i, r := range line {
		if r == ' ' && i > indent && (n <= columns || at < 0) {
			at = i
		}
		n++
	}
	if at < 0 {
		return line, "", false
	}
	first, rest = strings.TrimRight(line[:at], " "), strings.TrimLeft(line[at:], " ")
	return first, rest, rest != ""
}
