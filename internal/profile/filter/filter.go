// Package filter selects samples and leaves out frames of profiles. Its language is that of fulgur's
// pages: a page keeps its filters in its address.
//
// A filter is a text "kind:argument":
//
//	focus:EXPR      only stacks with a match
//	ignore:EXPR     only stacks without a match
//	hide:EXPR       without the frames that match
//	focus-fn:KEY, ignore-fn:KEY, hide-fn:KEY
//	                likewise for one function, by its key on pages
//	process:WHICH   only processes whose name matches the expression WHICH, or with this ID
//	thread:WHICH    likewise of threads
//	label:KEY=EXPR  only samples with a label whose value matches
//	time:FROM,TO    only this part of the recording
//	ignore-time:FROM,TO
//	                without this part
//
// EXPR is a regular expression of a part of the name of a function or process; after "module:" or
// "file:", of a part of the path of its module or source file. It ignores case unless it has
// capitals. FROM and TO are seconds or durations since the beginning, and can be empty: the beginning or the end.
package filter

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/label"
	"fulgur/internal/profile/recording"
)

// Max is the maximum number of filters, as on pages.
const Max = 32

// The kinds of filters.
const (
	Focus   = "focus"
	Ignore  = "ignore"
	Hide    = "hide"
	Process = "process"
	Thread  = "thread"
	Label   = "label"
	// Time and IgnoreTime select parts of recordings.
	Time       = "time"
	IgnoreTime = "ignore-time"
)

// byKey is after the kinds of filters for one function.
const byKey = "-fn"

// pageKinds are the kinds of filters that only pages have.
var pageKinds = []string{"library", "recursion", "under", "ending"}

// Filter is one filter.
type Filter struct {
	kind, argument string
	// field is what the expression matches: "module", "file", or "" for names. Of a label, it is the key.
	field   string
	pattern *regexp.Regexp
	id      int // of a process or thread, 0 if pattern matches its name
	span    recording.Span
}

// String returns the filter as text.
func (f Filter) String() string { return f.kind + ":" + f.argument }

// New returns the filter of a kind. The error says what is wrong with the argument.
func New(kind, argument string) (f Filter, err error) {
	f = Filter{kind: kind, argument: argument}
	expression := argument
	switch kind {
	case Focus, Ignore, Hide:
		if field, rest, ok := strings.Cut(argument, ":"); ok && (field == "module" || field == "file") {
			f.field, expression = field, rest
		}
	case Focus + byKey, Ignore + byKey, Hide + byKey:
		return f, nil
	case Process, Thread:
		if id, err := strconv.ParseUint(argument, 10, 31); err == nil && id > 0 {
			f.id = int(id)
			return f, nil
		}
	case Time, IgnoreTime:
		f.span, err = parseSpan(argument)
		return f, err
	case Label:
		key, value, ok := strings.Cut(argument, "=")
		if !ok || key == "" {
			return f, fmt.Errorf("%q is not KEY=EXPRESSION", argument)
		}
		f.field, expression = key, value
	default:
		if slices.Contains(pageKinds, kind) {
			return f, fmt.Errorf("the filter %q works only on pages", kind)
		}
		return f, fmt.Errorf("unknown filter %q", kind)
	}
	if strings.ContainsAny(argument, "\n\r") {
		return f, errors.New("an expression has no line ends")
	}
	f.pattern, err = compile(expression)
	return f, err
}

// escaped matches an escape sequence, whose letter does not count as a capital.
var escaped = regexp.MustCompile(`\\.`)

// compile compiles an expression, which ignores case unless it has capitals.
func compile(expression string) (*regexp.Regexp, error) {
	flags := "(?i)"
	if strings.ContainsFunc(escaped.ReplaceAllLiteralString(expression, ""), func(c rune) bool { return 'A' <= c && c <= 'Z' }) {
		flags = ""
	}
	pattern, err := regexp.Compile(flags + expression)
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", expression, errors.Unwrap(err))
	}
	return pattern, nil
}

// Parse parses a filter.
func Parse(text string) (Filter, error) {
	kind, argument, _ := strings.Cut(text, ":")
	return New(kind, argument)
}

// List are filters that are applied one after the other.
type List []Filter

// ParseAddress returns the filters in the address of a page: a URL, or the part after "#". Of a page's other
// choices it knows the process or thread, and the range of time; views and searches do not
// select samples.
func ParseAddress(address string) (list List, err error) {
	if _, after, ok := strings.Cut(address, "#"); ok {
		address = after
	}
	choices, err := url.ParseQuery(address)
	if err != nil {
		return nil, fmt.Errorf("not the address of a page: %w", err)
	}
	lines := slices.DeleteFunc(strings.Split(choices.Get("filter"), "\n"), func(line string) bool { return line == "" })
	if task := choices.Get("task"); task != "" {
		kind, which, _ := strings.Cut(task, ".")
		switch kind {
		case "c":
			lines = append([]string{Process + ":^(?:" + regexp.QuoteMeta(which) + ")$"}, lines...)
		case "p":
			lines = append([]string{Process + ":" + which}, lines...)
		case "t":
			lines = append([]string{Thread + ":" + which}, lines...)
		default:
			return nil, errors.New("the choice of a group works only on pages")
		}
	}
	if text := choices.Get("time"); text != "" {
		span, err := parsePageSpan(text)
		if err != nil {
			return nil, err
		}
		lines = append(lines, Time+":"+spanText(span))
	}
	if len(lines) > Max {
		return nil, fmt.Errorf("%d filters, the maximum is %d", len(lines), Max)
	}
	for _, line := range lines {
		f, err := Parse(line)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// Address returns the part of a page's address after "#" for the filters, "" for none.
func (l List) Address() string {
	var lines []string
	choices := url.Values{}
	for i, f := range l { // an address has one range of time, which is the last filter
		if f.isPageTime() && !slices.ContainsFunc(l[i+1:], Filter.isPageTime) {
			choices.Set("time", pageSpanText(f.span))
		} else {
			lines = append(lines, f.String())
		}
	}
	if len(lines) > 0 {
		choices.Set("filter", strings.Join(lines, "\n"))
	}
	return choices.Encode()
}

// ForPages divides the filters into those that only commands can apply, since pages have no labels, and only one range
// of time with a beginning and an end, and the others. The result is the same in this order.
func (l List) ForPages() (own, pages List) {
	times := 0
	for _, f := range l {
		if f.isTime() {
			times++
		}
	}
	for _, f := range l {
		if f.kind == Label || f.isTime() && (times > 1 || !f.isPageTime()) {
			own = append(own, f)
		} else {
			pages = append(pages, f)
		}
	}
	return own, pages
}

// Apply returns p with the filters applied. It shares tables with p. key returns the key of a frame on pages. Filters of
// time have no effect: see [List.ApplyTimes].
func (l List) Apply(p *profile.Profile, key func(*profile.Profile, profile.FrameID) string) *profile.Profile {
	if len(l) == 0 {
		return p
	}
	return l.choose(p, key).Profile
}

// ApplyTimes returns a recording that was read from a file with the filters applied. It fails if its events cannot be
// read.
func (l List) ApplyTimes(line *profile.Timeline, key func(*profile.Profile, profile.FrameID) string) (*profile.Timeline, error) {
	if spans, ok := l.spans(line.End - line.Start); ok {
		line = recording.Cut(line, spans)
	}
	if !slices.ContainsFunc(l, func(f Filter) bool { return !f.isTime() }) {
		return line, nil
	}
	perThread := recording.HasThreads(line.Profile) || l.Has(Thread)
	return recording.Choose(line, perThread, func(p *profile.Profile) recording.Choice { return l.choose(p, key) })
}

// Has reports whether there is a filter of a kind.
func (l List) Has(kind string) bool {
	return slices.ContainsFunc(l, func(f Filter) bool { return f.kind == kind })
}

// NeedsTimes reports whether the filters can only be applied to a recording, because they select times. PrefersTimes
// reports whether they do more there: a recording knows all threads, and its sum may not.
func (l List) NeedsTimes() bool { return slices.ContainsFunc(l, Filter.isTime) }

// PrefersTimes is described at [List.NeedsTimes].
func (l List) PrefersTimes() bool { return l.NeedsTimes() || l.Has(Thread) }

// Split divides the filters into those of some kinds, and the others.
func (l List) Split(kinds ...string) (of, others List) {
	for _, f := range l {
		if slices.Contains(kinds, f.kind) {
			of = append(of, f)
		} else {
			others = append(others, f)
		}
	}
	return of, others
}

func (f Filter) isTime() bool { return f.kind == Time || f.kind == IgnoreTime }

// choose applies the filters to a profile.
func (l List) choose(p *profile.Profile, key func(*profile.Profile, profile.FrameID) string) recording.Choice {
	c := recording.Choice{Profile: p, Rows: make([]int, len(p.Samples))}
	for i := range c.Rows {
		c.Rows[i] = i
	}
	for _, f := range l {
		var next recording.Choice
		switch f.kind {
		case Time, IgnoreTime:
			continue
		case Process, Thread, Label:
			next = f.tasks(c.Profile)
		case Hide, Hide + byKey:
			next = hide(c.Profile, f.frames(c.Profile, key))
		default:
			next = f.stacks(c.Profile, key)
		}
		for i, row := range c.Rows {
			if row >= 0 {
				c.Rows[i] = next.Rows[row]
			}
		}
		c.Profile = next.Profile
	}
	return c
}

// tasks returns p with the samples of the tasks that the filter selects.
func (f Filter) tasks(p *profile.Profile) recording.Choice {
	wanted := make([]bool, len(p.Tasks))
	for i, t := range p.Tasks {
		switch {
		case f.kind == Label:
			wanted[i] = f.hasLabel(p, profile.TaskID(i))
		case f.id == 0:
			wanted[i] = f.pattern.MatchString(plain.Terminal(t.Comm))
		case f.kind == Process:
			wanted[i] = t.PID == f.id
		default:
			wanted[i] = t.TID == f.id
		}
	}
	chosen := only(p, func(s profile.Sample) bool { return wanted[s.Task] })
	chosen.Profile.Meta.Slowest = f.slowest(p.Meta.Slowest)
	return chosen
}

// slowest returns the intervals in the tasks that the filter selects. They lack the labels of samples.
func (f Filter) slowest(all []profile.SlowInterval) (some []profile.SlowInterval) {
	for _, i := range all {
		var wanted bool
		switch {
		case f.kind == Label:
			wanted = slices.ContainsFunc(i.Fields, func(l profile.Label) bool { return l.Key == f.field && f.pattern.MatchString(l.Value) })
		case f.id == 0:
			wanted = f.pattern.MatchString(plain.Terminal(i.Comm))
		case f.kind == Process:
			wanted = i.PID == f.id
		default:
			wanted = i.TID == f.id
		}
		if wanted {
			some = append(some, i)
		}
	}
	return some
}

// hasLabel reports whether a task has the label, or its container, pod or unit is named so.
func (f Filter) hasLabel(p *profile.Profile, id profile.TaskID) bool {
	for _, l := range p.LabelsOf(id) {
		if l.Key == f.field && f.pattern.MatchString(l.Value) {
			return true
		}
	}
	if at := p.Tasks[id].Owner; at != 0 {
		owner := p.Owners[at]
		if name := owner.PprofField(f.field); name != nil && *name != "" {
			return f.pattern.MatchString(*name)
		}
	}
	return false
}

// only returns p with the samples that keep selects.
func only(p *profile.Profile, keep func(profile.Sample) bool) recording.Choice {
	q, rows := *p, make([]int, len(p.Samples))
	q.Samples = nil
	for i, s := range p.Samples {
		rows[i] = -1
		if keep(s) {
			rows[i] = len(q.Samples)
			q.Samples = append(q.Samples, s)
		}
	}
	return recording.Choice{Profile: &q, Rows: rows}
}

// frames returns which frames match.
func (f Filter) frames(p *profile.Profile, key func(*profile.Profile, profile.FrameID) string) []bool {
	matches := make([]bool, len(p.Frames))
	known := map[string]bool{}
	match := func(text string) bool {
		m, ok := known[text]
		if !ok {
			m = f.pattern.MatchString(text)
			known[text] = m
		}
		return m
	}
	for i := 1; i < len(matches); i++ {
		id := profile.FrameID(i)
		switch {
		case f.pattern == nil:
			matches[i] = key(p, id) == f.argument
		case f.field == "module":
			matches[i] = match(terminal(p.Mappings[p.Frames[i].Mapping].Path))
		case f.field == "file":
			matches[i] = match(terminal(p.Functions[p.Frames[i].Function].File))
		default:
			name := plain.Terminal(p.FrameName(id))
			matches[i] = match(name) || p.Frames[i].Kind != profile.KindMarker && match(shortname.Of(name))
		}
	}
	if f.pattern == nil {
		sameFunction(p, matches)
	}
	return matches
}

// terminal is [plain.Terminal], except that an empty string stays empty.
func terminal(s string) string {
	if s == "" {
		return ""
	}
	return plain.Terminal(s)
}

// sameFunction adds the frames that have the name and module of one that matches: a key tells inlined ones
// from others.
func sameFunction(p *profile.Profile, matches []bool) {
	type function struct {
		name    string
		mapping profile.MappingID
	}
	of := func(i int) function { return function{p.FrameName(profile.FrameID(i)), p.Frames[i].Mapping} }
	wanted := map[function]bool{}
	for i, m := range matches {
		if m {
			wanted[of(i)] = true
		}
	}
	for i := 1; i < len(matches) && len(wanted) > 0; i++ {
		matches[i] = matches[i] || wanted[of(i)]
	}
}

// stacks returns p with the samples whose stacks match, or do not.
func (f Filter) stacks(p *profile.Profile, key func(*profile.Profile, profile.FrameID) string) recording.Choice {
	matches := f.frames(p, key)
	has := make([]bool, len(p.Stacks))
	for i := 1; i < len(has); i++ {
		s := p.Stacks[i]
		has[i] = has[s.Parent] || matches[s.Frame]
	}
	task := make([]bool, len(p.Tasks))
	groups := label.Groups(p)
	for i, t := range p.Tasks {
		task[i] = f.matchesBelow(label.Task(t)) || groups[i] != "" && f.matchesBelow(groups[i])
	}
	wanted := f.kind == Focus || f.kind == Focus+byKey
	return only(p, func(s profile.Sample) bool {
		cpu, named := label.CPU(s.CPU)
		return (has[s.Stack] || task[s.Task] || named && f.matchesBelow(cpu)) == wanted
	})
}

// matchesBelow reports whether a box below all functions, such as a process, matches. It has no module and no
// file.
func (f Filter) matchesBelow(name string) bool {
	switch {
	case f.pattern == nil:
		return false
	case f.field != "":
		return f.pattern.MatchString("")
	}
	return f.pattern.MatchString(plain.Terminal(name))
}

// hide returns p without some frames.
func hide(p *profile.Profile, hidden []bool) recording.Choice {
	q := *p
	q.Stacks, q.Samples = make([]profile.Stack, 1, len(p.Stacks)), nil
	q.Frames = slices.Clone(p.Frames)
	stacks := make([]profile.StackID, len(p.Stacks))
	known := map[profile.Stack]profile.StackID{}
	outer := map[profile.FrameID]profile.FrameID{}
	for i := 1; i < len(p.Stacks); i++ {
		s := p.Stacks[i]
		parent := stacks[s.Parent]
		if hidden[s.Frame] {
			stacks[i] = parent
			continue
		}
		frame := s.Frame
		if p.Frames[frame].Inlined && hidden[p.Stacks[s.Parent].Frame] && parent != s.Parent {
			// The function around it is gone.
			if id, ok := outer[frame]; ok {
				frame = id
			} else {
				made := q.Frames[frame]
				made.Inlined = false
				q.Frames = append(q.Frames, made)
				outer[frame] = profile.FrameID(len(q.Frames) - 1)
				frame = outer[frame]
			}
		}
		at := profile.Stack{Parent: parent, Frame: frame}
		id, ok := known[at]
		if !ok {
			q.Stacks = append(q.Stacks, at)
			id = profile.StackID(len(q.Stacks) - 1)
			known[at] = id
		}
		stacks[i] = id
	}
	type place struct {
		stack profile.StackID
		task  profile.TaskID
		cpu   int
		end   any
	}
	rows, of := map[place]int{}, make([]int, len(p.Samples))
	for i, s := range p.Samples {
		s.Stack = stacks[s.Stack]
		at := place{s.Stack, s.Task, s.CPU, s.End}
		row, ok := rows[at]
		of[i] = row
		if !ok {
			rows[at] = len(q.Samples)
			of[i] = len(q.Samples)
			s.Values = slices.Clone(s.Values)
			q.Samples = append(q.Samples, s)
			continue
		}
		for v, n := range s.Values {
			q.Samples[row].Values[v] += n
		}
	}
	return recording.Choice{Profile: &q, Rows: of}
}
