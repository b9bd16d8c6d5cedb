package decode

import (
	"bufio"
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// readBpftrace reads bpftrace's output of maps with stacks as keys:
//
//	@[
//	    do_syscall_64+92
//	    entry_SYSCALL_64_after_hwframe+110
//	,
//	    write+20
//	, tar]: 42
//
// Stacks are leaf first. If a key has two, the first is the kernel's, as in bpftrace's
// own tools. The last string that is not a stack is the task's name, and a number the
// process ID. Other keys become frames at the root. Maps without keys have no stacks, and are
// ignored. Entries whose values are not numbers (histograms, statistics), entries without an end
// and lines that are not bpftrace's are counted as [profile.LossUnread].
func readBpftrace(r *bufio.Reader) (*profile.Profile, error) {
	c := newCollector()
	in := lines{r: r, limit: maxEventLine}
	var entry *bpftraceEntry
	entries, stacks := uint64(0), false // that were read, and whether one has a stack
	for {
		line, ok, err := in.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			c.unread += entry.lines()
			if !stacks { // other text has single lines like those of maps
				if err := c.foreignText(entries, 0); err != nil {
					return nil, err
				}
			}
			return c.profile(profile.Meta{})
		}
		if m := bpftraceMap.FindStringSubmatch(line); m != nil {
			c.unread += entry.lines()
			entry = &bpftraceEntry{name: m[1]}
			if line = m[2]; line == "" {
				entry.count++
				continue
			}
			line = ", " + line
		}
		if entry == nil {
			c.bpftraceLine(line)
			continue
		}
		if done, n, ok := entry.line(line); done {
			if ok {
				entries++
				stacks = stacks || len(entry.stacks) > 0
				c.bpftrace(entry, n)
			} else {
				c.unread++
			}
			entry = nil
		}
	}
}

var (
	bpftraceMap = regexp.MustCompile(`(?m)^@(\w*)\[(.*)$`)
	// bpftraceBare matches maps without keys.
	bpftraceBare = regexp.MustCompile(`(?m)^@\w*:( -?\d+)?\r?$`)
	bpftraceEnd  = regexp.MustCompile(`^(.*)\]:(?: (.*))?$`)
	// bpftraceLost matches lost events, in groups the number.
	bpftraceLost = regexp.MustCompile(`^(?:WARNING: )?[Ll]ost (\d+) events`)
	// bpftraceOther matches lines without samples: messages at the beginning, maps without keys
	// and rows of histograms.
	bpftraceOther = regexp.MustCompile(`^(?:Attach(?:ing|ed) \d+ probes?(?:\.\.\.)?|@\w*:.*|[\[(][^|]*[\])] *\d+ *\|[@ ]*\|)?\s*$`)
)

// bpftraceLine processes a line outside of entries.
func (c *collector) bpftraceLine(line string) {
	if m := bpftraceLost.FindStringSubmatch(line); m != nil {
		if n, err := strconv.ParseUint(m[1], 10, 64); err == nil {
			c.lost = addUpTo(c.lost, n)
			return
		}
	}
	if !bpftraceOther.MatchString(line) {
		c.unread++
	}
}

// bpftraceEntry is a partially read entry of a map.
type bpftraceEntry struct {
	name   string // of the map
	stacks [][]string
	texts  []string
	open   bool   // the last stack is incomplete
	size   int    // of the entry so far, in bytes
	count  uint64 // of its lines so far
}

// lines returns the number of lines of an entry that does not end; 0 if e is nil.
func (e *bpftraceEntry) lines() uint64 {
	if e == nil {
		return 0
	}
	return e.count
}

// isTooLong reports whether an entry is too long to keep in memory.
func (e *bpftraceEntry) isTooLong() bool { return e.size > profile.MaxLine }

// line processes a line. At the end of the entry it returns its value, if it has one.
func (e *bpftraceEntry) line(line string) (done bool, n int64, ok bool) {
	e.size += len(line) + 1
	e.count++
	rest, isKey := strings.CutPrefix(line, ",")
	if !isKey && line[:min(1, len(line))] != "]" {
		e.frame(line)
		return false, 0, false
	}
	if !isKey {
		rest = line
	}
	value := ""
	if m := bpftraceEnd.FindStringSubmatch(rest); m != nil {
		done, rest, value = true, m[1], m[2]
		if !isKey {
			rest = ""
		}
	}
	if isKey {
		e.keys(rest, done)
	}
	e.open = false
	n, err := strconv.ParseInt(value, 10, 64)
	return done, n, err == nil
}

// frame adds a frame to the stack being read.
func (e *bpftraceEntry) frame(line string) {
	line = strings.TrimSpace(line)
	if line == "" || e.isTooLong() {
		return
	}
	if !e.open {
		e.stacks, e.open = append(e.stacks, nil), true
	}
	last := len(e.stacks) - 1
	e.stacks[last] = append(e.stacks[last], line)
}

// keys processes the keys on a line. An empty one is a stack without frames, or if it is
// the last, a stack whose frames follow on the next lines.
func (e *bpftraceEntry) keys(text string, last bool) {
	if e.isTooLong() {
		return
	}
	keys := strings.Split(text, ",")
	for i, key := range keys {
		key = cutTuple(strings.TrimSpace(key))
		switch {
		case key != "":
			e.texts = append(e.texts, key)
		case i < len(keys)-1 || last:
			e.stacks = append(e.stacks, nil)
		}
	}
}

// cutTuple cuts the parentheses of a tuple off its first or last element.
func cutTuple(key string) string {
	for strings.HasPrefix(key, "(") && strings.Count(key, "(") > strings.Count(key, ")") {
		key = key[1:]
	}
	for strings.HasSuffix(key, ")") && strings.Count(key, ")") > strings.Count(key, "(") {
		key = key[:len(key)-1]
	}
	return key
}

// bpftrace adds an entry's value.
func (c *collector) bpftrace(e *bpftraceEntry, n int64) {
	at := profile.Sample{CPU: -1}
	var task profile.Task
	for i, text := range e.texts {
		pid, err := strconv.Atoi(text)
		switch {
		case err == nil:
			task.PID = pid
		case i == len(e.texts)-1:
			task.Comm = text
		default:
			at.Stack = c.Push(at.Stack, c.named(text, profile.KindMarker, false))
		}
	}
	at.Task = c.Task(task)
	for i := len(e.stacks) - 1; i >= 0; i-- {
		kind := profile.KindUser
		if i == 0 && len(e.stacks) > 1 {
			kind = profile.KindKernel
		}
		for j := len(e.stacks[i]) - 1; j >= 0; j-- {
			if at.Stack = c.Push(at.Stack, c.bpftraceFrame(e.stacks[i][j], kind, j > 0)); c.IsCut(at.Stack) {
				break
			}
		}
	}
	if e.isTooLong() {
		at.Stack = c.Cut()
	}
	name := "samples"
	if e.name != "" {
		name = e.name
	}
	c.Count(at, c.Value(profile.ValueType{Type: name, Unit: "count"}), n)
}

// bpftraceFrame interns a frame: "name+offset", an address, or a line as perf
// script prints it. All but the innermost of a stack have return addresses.
func (c *collector) bpftraceFrame(text string, kind profile.Kind, isReturn bool) profile.FrameID {
	if f, ok := parseFrame("\t" + text); ok && (f.name != "" || f.file != "" || strings.Contains(text, " ")) {
		made := c.madeFrame(f)
		made.Return = isReturn
		return c.Frame(made)
	}
	addr, err := strconv.ParseUint(text, 0, 64)
	if err != nil && len(text) >= 6 && strings.ContainsAny(text, decimalDigits) { // of the mode raw
		addr, err = strconv.ParseUint(text, 16, 64)
	}
	if err == nil {
		return c.Frame(profile.Frame{Address: addr, Return: isReturn, Kind: kind})
	}
	name, _ := cutOffset(text)
	return c.named(name, kind, false)
}
