// Package plain writes the parts that lines of text have in common. Above all it
// makes untrusted names safe to print. A process chooses its
// own name and, through symbol tables and perf maps, the names of its
// functions: printed as they are, they could move the cursor, forge lines of
// output or retitle the terminal of the user, who is often root.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Terminal returns s as one line that is safe to print. Whatever is not
// printable by [strconv.IsPrint] is replaced by its escape in a Go string: of
// control characters `\x1b` and `\n`, of bytes that are not UTF-8 `\xff`, of
// characters that change the direction of text, separate lines or have no
// shape `\u202e`. A name without any of them, as good as every name, is
// returned as it is. The empty string becomes `""`, to be seen.
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

// Error returns what err says as one line that is safe to print: messages
// quote file names and the like. The errors that [errors.Join] puts on lines of
// their own are parted by "; ".
func Error(err error) string {
	return Terminal(strings.ReplaceAll(err.Error(), "\n", "; "))
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

// FoldedFrame returns s as one frame of a line of the folded format, in which
// ";" ends a frame: as [Terminal] does, with ":" in the place of ";". The
// format has no escape for it, and the tools that write it replace it so.
func FoldedFrame(s string) string {
	return strings.ReplaceAll(Terminal(s), ";", ":")
}

// Count returns n and a noun in its number: "1 sample", "2 samples".
func Count(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
