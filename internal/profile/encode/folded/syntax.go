package folded

import (
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// The functions in this file and [Votes] tell what a text of folded stacks says. The reader and the writer
// share them, so that the writer knows what the reader would take for something else.

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

// CutFrame splits the first frame off a stack. Descriptors of Java's methods contain semicolons:
// "f(Ljava/lang/String;I)V", and so do names of perf-map-agent: "Ljava/lang/String;::length".
func CutFrame(stack string) (frame, rest string, more bool) {
	for i := 0; i < len(stack); i++ {
		switch stack[i] {
		case '(':
			if d := descriptor.FindString(stack[i:]); d != "" {
				i += len(d) - 1
			}
		case ';':
			if strings.HasPrefix(stack[i:], ";::") && javaClass.MatchString(stack[:i]) {
				continue
			}
			return stack[:i], stack[i+1:], true
		}
	}
	return stack, "", false
}

var (
	descriptor = regexp.MustCompile(`^\((\[*([BCDFIJSZ]|L[^;()\[\s]+;))+\)(\[*([BCDFIJSZV]|L[^;()\[\s]+;))?`)
	javaClass  = regexp.MustCompile(`^L[\w$/.]+$`)
)

// CutSuffix splits the suffix off a frame's name: "_[k]", "_[i]", "_[j]", "_[0]" or "_[1]". suffix is
// its letter, 0 for none.
func CutSuffix(name string) (base string, suffix byte) {
	if n := len(name) - 4; n > 0 && name[n:n+2] == "_[" && name[n+3] == ']' && strings.IndexByte("kij01", name[n+2]) >= 0 {
		return name[:n], name[n+2]
	}
	return name, 0
}

// CPU parses the frame of a CPU.
func CPU(name string) (cpu int, ok bool) {
	number, ok := strings.CutPrefix(name, "[CPU ")
	number, end := strings.CutSuffix(number, "]")
	cpu, err := strconv.Atoi(number)
	return cpu, ok && end && err == nil && cpu >= 0
}

// Forms of the names of tasks.
var (
	// thread is the name of a task in profiles by thread.
	thread = regexp.MustCompile(`^(.*)-([0-9]+|\?)/([0-9]+)$`)
	// asyncThread is the name of a thread in profiles of async-profiler.
	asyncThread = regexp.MustCompile(`^\[(.*) tid=([0-9]+)\]$`)
)

// Task parses the name of a task.
func Task(name string) profile.Task {
	comm, pid, tid := name, "", ""
	if m := thread.FindStringSubmatch(name); m != nil {
		comm, pid, tid = m[1], m[2], m[3]
	} else if m := asyncThread.FindStringSubmatch(name); m != nil {
		comm, tid = m[1], m[2]
	}
	id, err := strconv.Atoi(tid)
	if err != nil {
		return profile.Task{Comm: name}
	}
	process, _ := strconv.Atoi(pid) // "?" means unknown
	return profile.Task{PID: process, TID: id, Comm: comm}
}
