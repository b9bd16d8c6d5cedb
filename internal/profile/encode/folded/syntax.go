package folded

import (
	"regexp"
	"strings"
)

// The functions in this file tell folded stacks from other text. The reader and the writer share them,
// so that the writer knows which of its lines the reader would take for something else.

// statedUnit is the comment that states the value and the unit of folded stacks. The value
// has no spaces, unlike sentences that other tools write.
var statedUnit = regexp.MustCompile(`^# *(\S+|[^\s,]+, \S+) in (count|bytes|nanoseconds|microseconds|milliseconds|seconds|ns|us|ms|s)(, without tasks)?\s*$`)

// Header is the comment that states what the numbers of folded stacks are. No line after it has to look
// like a stack, because only fulgur writes it.
type Header struct {
	Values []string // one, or two of a comparison
	Unit   string
	Tasks  bool // the first frames are tasks
}

// ParseHeader parses a line that is a header.
func ParseHeader(line string) (h Header, ok bool) {
	m := statedUnit.FindStringSubmatch(line)
	if m == nil {
		return h, false
	}
	return Header{Values: strings.Split(m[1], ", "), Unit: m[2], Tasks: m[3] == ""}, true
}

// IsComment reports whether a line is a comment. Names such as "#private" begin with "#", too.
func IsComment(line string) bool {
	if line[0] != '#' {
		return false
	}
	return len(line) == 1 || strings.IndexByte("# \t!", line[1]) >= 0 || !strings.Contains(line, ";") || !IsStack(line)
}

// IsStack reports whether a line looks like a folded stack. A setting, as in "total: 3", is none, nor
// is what a call returns, as in strace's "f() = 3".
func IsStack(line string) bool {
	stack, _, ok := CutNumber(line)
	return ok && !IsSetting(stack)
}

// IsSetting reports whether what precedes a number looks like the name of what has it, or a call that
// returned it.
func IsSetting(stack string) bool {
	return strings.HasSuffix(stack, " =") || strings.HasSuffix(stack, ":") && !strings.Contains(stack, ";")
}

// CutNumber splits the number off the end of a line. ok is false without a number, or a stack.
func CutNumber(line string) (stack, number string, ok bool) {
	line = strings.TrimRight(line, " \t")
	i := strings.LastIndexAny(line, " \t")
	if i < 0 || !count.MatchString(line[i+1:]) {
		return "", "", false
	}
	stack = strings.TrimRight(line[:i], " \t")
	return stack, line[i+1:], stack != ""
}

// count matches a decimal number, maybe with a sign, a fraction and an exponent.
var count = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$`)

// IsText reports whether a line without ";" looks like the row of a table or like a sentence.
func IsText(line string) bool { return !strings.Contains(line, ";") && words.MatchString(line) }

var words = regexp.MustCompile(`^\s|\S(  |\t)\s*\S|([^\s()<>\[\],]+ ){4}`)
