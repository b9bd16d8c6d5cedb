// Package plain formats common parts of text messages. Above all it makes untrusted names
// safe to print. A process chooses its own name and, through symbol tables and perf maps,
// the names of its functions. Printed verbatim, these could move the cursor, forge lines
// of output or retitle the terminal of the user, who is often root.
package plain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Terminal returns s as a single line that is safe to print. It replaces everything that
// is not printable according to [strconv.IsPrint] by its Go escape: `\x1b` and `\n` for
// control characters, `\xff` for invalid UTF-8, `\u202e` for characters that are
// invisible, separate lines or change the direction of text. A name without any of these,
// which is nearly every name, is returned unchanged. The empty string becomes `""` to be
// visible.
func Terminal(s string) string {
	if s == "" {
		return `""`
	}
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// Error returns the message of err as a single line that is safe to print, since messages
// quote file names and the like. Errors combined by [errors.Join] are separated by "; ", and
// equal ones are named once.
func Error(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return Terminal(strings.Join(lines, "; "))
}

// isPlain reports whether s needs no escape.
func isPlain(s string) bool {
	for i, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return false
		}
	}
	return true
}

// FoldedFrame returns s as a frame of the folded format, where ";" separates frames: like
// [Terminal], with ":" in place of ";". The format has no escape for it, and the tools
// that write it use this replacement.
func FoldedFrame(s string) string {
	return strings.ReplaceAll(Terminal(s), ";", ":")
}

// Count returns n with the noun in singular or plural: "1 sample", "2 samples", "2 processes".
func Count(n uint64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Or joins alternatives: "a", "a or b", "a, b or c".
func Or(all []string) string {
	last := len(all) - 1
	if last <= 0 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
