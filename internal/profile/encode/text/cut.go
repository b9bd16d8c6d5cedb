package text

import (
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
)

// cut returns s made plain and shortened to width characters, the last of
// which then is "…". What can be said of a function without the arguments of
// its templates is not cut for them.
func cut(s string, width int) string {
	s = plain.Terminal(s)
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	s = contract(s)
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// contract replaces the arguments of templates in the name of a C++ function by
// "…": "map<…>::find(int)". Other angle brackets stay: operators, and types at
// the beginning of names as Rust has them. A name whose brackets do not match
// is returned as it is.
func contract(s string) string {
	var b strings.Builder
	depth := 0
	for i := range len(s) {
		before := s[:i]
		switch {
		case s[i] == '<' && (depth > 0 || isTemplate(before)):
			if depth == 0 {
				b.WriteString("<…")
			}
			depth++
		case s[i] == '>' && depth > 0 && !strings.HasSuffix(before, "-"):
			depth--
		}
		if depth == 0 {
			b.WriteByte(s[i])
		}
	}
	if depth > 0 {
		return s
	}
	return b.String()
}

// isTemplate reports whether a "<" after s begins arguments.
func isTemplate(s string) bool {
	s = strings.TrimSuffix(s, "<") // operator<<
	return s != "" && !strings.HasSuffix(s, "operator") && !strings.ContainsRune(" (<,", rune(s[len(s)-1]))
}
