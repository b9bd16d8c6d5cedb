package text

import (
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
)

// cut returns s made plain and truncated to width characters, the last of which is then
// "…". It shortens template arguments first.
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

// contract replaces template arguments in the name of a C++ function by "…":
// "map<…>::find(int)". Other angle brackets stay: operators, and types at the beginning
// of Rust names. A name with unbalanced brackets is returned unchanged.
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

// isTemplate reports whether a "<" after s begins template arguments.
func isTemplate(s string) bool {
	s = strings.TrimSuffix(s, "<") // operator<<
	return s != "" && !strings.HasSuffix(s, "operator") && !strings.ContainsRune(" (<,", rune(s[len(s)-1]))
}
