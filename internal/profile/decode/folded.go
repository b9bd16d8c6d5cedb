package decode

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/folded"
)

// readFolded reads folded stacks: frames separated by ";", root first, then a space and a
// number. The first frame is the task's name in the output of stackcollapse-perf.pl, bcc and
// fulgur, see [folded.Votes]. A frame "[CPU n]" may precede it. Suffixes such as "_[k]" mark kinds of
// frames, and frames after a frame "-" are kernel frames. If all lines end in two numbers, they are
// the values "base" and "new" of a comparison. A comment "# off-cpu in microseconds" before stacks
// states their value and unit; without one, they are samples, or have the given unit. Other lines are
// counted.
func readFolded(r *bufio.Reader, unit string) (*profile.Profile, error) {
	head, _ := r.Peek(sniffed) // an error comes again
	c := foldedReader{collector: newCollector(), lines: lines{r: r, limit: profile.MaxLine}}
	names := []string{"samples"}
	switch base, _, _ := profile.ParseUnit(unit); {
	case isComparison(head):
		names = []string{"base", "new"}
	case base == "nanoseconds":
		names = []string{"time"}
	case base != "" && base != "count":
		names = []string{base}
	}
	c.state(names, cmp.Or(unit, "count"))
	columns := len(c.types)
	var unread error // of the first line that was not read
	for {
		line, ok, err := c.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if folded.IsComment(line) {
			if h, ok := folded.ParseHeader(line); ok && len(h.Values) == columns {
				c.state(h.Values, h.Unit)
				c.header = &h
			}
			continue
		}
		switch err := c.stack(line); {
		case errors.Is(err, errLine):
			c.unread++
			if unread == nil {
				unread = c.errorf("no number after the stack %.60q", line)
			}
		case err != nil:
			return nil, err
		}
	}
	if c.votes.Lines == 0 && unread != nil {
		return nil, unread
	}
	if err := c.foreignText(uint64(c.votes.Lines-c.votes.Single), uint64(c.votes.Single)); err != nil {
		return nil, err
	}
	if c.header == nil && c.votes.Text() {
		return nil, errText
	}
	if c.votes.Lines == 0 {
		c.values()
	}
	m := profile.Meta{}
	if columns > 1 {
		m.Value = c.types[columns-1].Type // as of the page of a comparison
	}
	p, err := c.profile(m)
	if err == nil && c.header == nil && !c.votes.Tasks() {
		p, err = WithoutTasks(p)
	}
	return p, err
}

// foldedReader reads folded stacks.
type foldedReader struct {
	*collector
	lines
	types  []profile.ValueType // of the columns
	index  []int               // of the types in the profile, nil if they are not there yet
	amount int64               // of a 1 in the columns
	rest   [2]float64          // what rounding left of each column
	header *folded.Header      // that fulgur has written, nil without one
	votes  folded.Votes
}

// state sets the values of the next lines and their unit.
func (c *foldedReader) state(names []string, unit string) {
	c.types, c.index, c.rest = nil, nil, [2]float64{}
	name, amount, _ := profile.ParseUnit(unit)
	c.amount = amount
	for _, n := range names {
		c.types = append(c.types, profile.ValueType{Type: n, Unit: name})
	}
}

// values returns the indexes of the values of the columns.
func (c *foldedReader) values() []int {
	if c.index == nil {
		for _, v := range c.types {
			c.index = append(c.index, c.Value(v))
		}
	}
	return c.index
}

// errText is the error of a text of which many lines end in numbers.
var errText = errors.New("it is a table or another text: most lines have columns or several words, and folded stacks have frames separated by \";\" and a number")

// errLine is the error of a line that is no stack with its numbers.
var errLine = errors.New("no stack with a number")

// stack adds a line.
func (c *foldedReader) stack(line string) error {
	stack := line
	var numbers [2]string
	for i := len(c.types) - 1; i >= 0; i-- {
		var ok bool
		if stack, numbers[i], ok = folded.CutNumber(stack); !ok {
			return errLine
		}
	}
	if c.header == nil && folded.IsSetting(stack) {
		return errLine
	}
	c.votes.Add(line, stack)
	at := c.sample(stack)
	for i, v := range c.values() {
		n, ok := c.number(numbers[i], i)
		if !ok {
			return c.errorf("the number %.40s after the stack is too large", numbers[i])
		}
		c.Count(at, v, n)
	}
	return nil
}

// number returns the amount that a number in a column stands for. Of fractions it rounds the running
// sum, so that the total is exact.
func (c *foldedReader) number(text string, column int) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n * c.amount, n <= math.MaxInt64/c.amount && n >= -math.MaxInt64/c.amount
	}
	f, err := strconv.ParseFloat(text, 64)
	f = f*float64(c.amount) + c.rest[column]
	if err != nil || math.Abs(f) > 1<<62 {
		return 0, false
	}
	n := math.Round(f)
	c.rest[column] = f - n
	return int64(n), true
}

// isComparison reports whether all stacks in the beginning of an input have two numbers, as
// difffolded.pl and fulgur write them.
func isComparison(head []byte) bool {
	found := false
	for text := range bytes.Lines(wholeLines(head)) {
		line := strings.TrimSpace(string(text))
		if h, ok := folded.ParseHeader(line); ok {
			return len(h.Values) == 2
		}
		if line == "" || folded.IsComment(line) {
			continue
		}
		if !folded.IsStack(line) {
			continue
		}
		stack, _, _ := folded.CutNumber(line)
		if _, _, ok := folded.CutNumber(stack); !ok {
			return false
		}
		found = true
	}
	return found
}

// sample interns a folded stack, with its first frame as the task, unless there are none.
func (c *foldedReader) sample(stack string) profile.Sample {
	at := profile.Sample{CPU: -1}
	name, rest, more := folded.CutFrame(stack)
	if cpu, ok := folded.CPU(name); ok {
		at.CPU, stack = cpu, rest
		name, rest, more = folded.CutFrame(stack)
	}
	var task profile.Task
	if c.header == nil || c.header.Tasks {
		task = folded.Task(name)
	} else {
		rest, more = stack, stack != ""
	}
	at.Task = c.Task(task)
	kind, waker := profile.KindUser, false
	for more {
		name, rest, more = folded.CutFrame(rest)
		switch {
		case name == "-" && waker:
			kind = profile.KindUser
			continue
		case name == "-":
			kind = profile.KindKernel
			continue
		case name == "--": // bcc's offwaketime: the waker's stack follows, leaf first
			waker = true
		}
		if at.Stack = c.Push(at.Stack, c.annotated(name, kind)); c.IsCut(at.Stack) {
			break
		}
	}
	return at
}

// annotated interns a frame, whose name may have a suffix for its kind of code. The suffixes are
// those of stackcollapse-perf.pl and async-profiler.
func (c *collector) annotated(name string, kind profile.Kind) profile.FrameID {
	name, suffix := folded.CutSuffix(name)
	switch suffix {
	case 'k':
		kind = profile.KindKernel
	case 'j', '1': // compiled, by HotSpot's first compiler
		kind = profile.KindJIT
	}
	if name == "--" {
		kind = profile.KindMarker
	}
	return c.named(name, kind, suffix == 'i')
}

// WithoutTasks returns a profile from folded stacks with the names of its tasks as the first frames.
func WithoutTasks(p *profile.Profile) (*profile.Profile, error) {
	c := newCollector(p.ValueTypes...)
	none := c.Task(profile.Task{})
	for _, s := range p.Samples {
		at := profile.Sample{CPU: s.CPU, Task: none}
		if name := p.Tasks[s.Task].Comm; name != "" {
			at.Stack = c.Push(0, c.annotated(name, profile.KindUser))
		}
		for _, id := range slices.Backward(p.AppendFrames(nil, s.Stack)) {
			if c.IsCut(at.Stack) {
				break
			}
			f := p.Frames[id]
			at.Stack = c.Push(at.Stack, c.named(p.Functions[f.Function].Name, f.Kind, f.Inlined))
		}
		for v, n := range s.Values {
			c.Count(at, v, n)
		}
	}
	made, err := c.profile(p.Meta)
	if err != nil {
		return nil, err
	}
	for cause, n := range p.Losses { // what p lacks is cut again, or not there any more
		made.Losses[cause] = max(made.Losses[cause], n)
	}
	return made, nil
}
