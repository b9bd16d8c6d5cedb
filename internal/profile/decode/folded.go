package decode

import (
	"bufio"
	"math"
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// readFolded reads folded stacks: frames separated by ";", root first, then a space and a
// number. The first frame is the task's name, as in the output of stackcollapse tools:
// "comm", or "comm-pid/tid". A frame "[CPU n]" may precede it. The suffixes "_[k]",
// "_[i]" and "_[j]" mark kernel, inlined and JIT frames, and frames after a frame "-" are
// kernel frames. A comment "# off-cpu in microseconds" before the stacks states their
// value and unit; without one, they are samples.
func readFolded(r *bufio.Reader) (*profile.Profile, error) {
	c := newCollector()
	value, amount, v := profile.ValueType{Type: "samples", Unit: "count"}, int64(1), -1
	in := lines{r: r, limit: profile.MaxLine}
	for {
		line, ok, err := in.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			c.Value(value)
			return c.profile(profile.Meta{})
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if line[0] == '#' {
			if m := statedUnit.FindStringSubmatch(line); m != nil && v < 0 {
				value.Type = m[1]
				value.Unit, amount, _ = profile.ParseUnit(m[2])
			}
			continue
		}
		stack, n, ok := cutValue(line)
		if !ok {
			return nil, in.errorf("no number after the stack %.60q", line)
		}
		if n > math.MaxInt64/amount {
			return nil, in.errorf("the number %d after the stack is too large", n)
		}
		if v < 0 {
			v = c.Value(value)
		}
		c.Count(c.folded(stack), v, n*amount)
	}
}

// statedUnit is the comment that states the value and the unit of folded stacks. The value
// has no spaces, unlike sentences that other tools write.
var statedUnit = regexp.MustCompile(`^# *(\S+) in (count|bytes|nanoseconds|microseconds|milliseconds|seconds|ns|us|ms|s)\s*$`)

// isFolded reports whether a line looks like a folded stack.
func isFolded(line string) bool {
	_, _, ok := cutValue(line)
	return ok
}

// cutValue splits the number off the end of a line.
func cutValue(line string) (stack string, n int64, ok bool) {
	line = strings.TrimRight(line, " \t")
	i := strings.LastIndexAny(line, " \t")
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(line[i+1:], 10, 64)
	return strings.TrimRight(line[:i], " \t"), n, err == nil && n >= 0
}

// folded interns a folded stack.
func (c *collector) folded(stack string) profile.Sample {
	at := profile.Sample{CPU: -1}
	name, rest, _ := strings.Cut(stack, ";")
	if cpu, ok := cpuFrame(name); ok {
		at.CPU = cpu
		name, rest, _ = strings.Cut(rest, ";")
	}
	at.Task = c.Task(foldedTask(name))
	if rest == "" {
		return at
	}
	kind := profile.KindUser
	for name := range strings.SplitSeq(rest, ";") {
		if name == "-" {
			kind = profile.KindKernel
			continue
		}
		frameKind, inlined := kind, false
		switch {
		case strings.HasSuffix(name, "_[k]"):
			frameKind = profile.KindKernel
		case strings.HasSuffix(name, "_[i]"):
			inlined = true
		case strings.HasSuffix(name, "_[j]"):
			frameKind = profile.KindJIT
		}
		if frameKind != kind || inlined {
			name = strings.TrimSuffix(name[:len(name)-len("]")], "_["+name[len(name)-2:len(name)-1])
		}
		if at.Stack = c.Push(at.Stack, c.named(name, frameKind, inlined)); c.IsCut(at.Stack) {
			break
		}
	}
	return at
}

// cpuFrame parses the frame of a CPU.
func cpuFrame(name string) (cpu int, ok bool) {
	number, ok := strings.CutPrefix(name, "[CPU ")
	number, end := strings.CutSuffix(number, "]")
	cpu, err := strconv.Atoi(number)
	return cpu, ok && end && err == nil && cpu >= 0
}

// thread is the name of a task in profiles by thread.
var thread = regexp.MustCompile(`^(.*)-([0-9]+|\?)/([0-9]+)$`)

// foldedTask parses the name of a task.
func foldedTask(name string) profile.Task {
	m := thread.FindStringSubmatch(name)
	if m == nil {
		return profile.Task{Comm: name}
	}
	pid, _ := strconv.Atoi(m[2]) // "?" means unknown
	tid, err := strconv.Atoi(m[3])
	if err != nil {
		return profile.Task{Comm: name}
	}
	return profile.Task{PID: pid, TID: tid, Comm: m[1]}
}
