package decode

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/profile"
)

// The versions of the processed format that are read. fulgur writes the last one. samply
// 0.11 writes version 44, 0.13 writes 49, and its later sources 66. In versions before 41,
// each thread has its own libs.
const (
	minFirefoxVersion = 41
	firefoxVersion    = 70
)

// readFirefox reads a profile of the Firefox Profiler and adds up its samples. Samples in
// time are "cpu" or "off-cpu". The pseudo-threads that weight stacks by another quantity
// become values. With withTimes, it also returns the times of the samples, if they have any.
func readFirefox(ctx context.Context, r *bufio.Reader, withTimes bool) (d Decoded, err error) {
	d.Format = Firefox
	parser := firefoxParser{jsonReader: jsonReader{r: r}, left: profile.MaxHeld, times: withTimes, keys: map[string]bool{}}
	f := &parser.profile
	err = parser.parse()
	if f.version == 0 && (err == nil || errors.As(err, new(*jsonError))) {
		return d, notFirefox(parser.keys)
	}
	if err != nil {
		return d, err
	}
	if f.version < minFirefoxVersion || f.version > firefoxVersion {
		return d, fmt.Errorf("version %d of the processed format; versions %d to %d are read", f.version, minFirefoxVersion, firefoxVersion)
	}
	var types []profile.ValueType
	for i, v := range f.values {
		if v.Of >= len(f.values) || v.Each > 0 && f.values[v.Of].Each > 0 {
			return d, fmt.Errorf("value %d is a part of value %d of %d", i, v.Of, len(f.values))
		}
		types = append(types, profile.ValueType{Type: v.Type, Unit: v.Unit})
	}
	c := &firefoxReader{collector: newCollector(types...), ctx: ctx, in: f, idle: int32(slices.Index(f.categories, "Idle"))}
	if withTimes {
		c.keep = parser.keep
	}
	// fulgur's recordings have all threads. Their pages, which fulgur writes itself, do not
	// separate them either.
	if isRecording := f.run != "" && !f.aggregated; !isRecording {
		for i := range f.threads {
			t := f.threads[i].task()
			c.threads = c.threads || t.TID != t.PID
		}
	}
	for i := range f.threads {
		f.threads[i].ofFulgur = f.run != ""
	}
	shared, err := c.stacks(&f.shared)
	if err != nil {
		return d, err
	}
	times := &firefoxTimes{in: f, tables: []*firefoxStacks{shared}}
	for i := range f.threads {
		t, s := &f.threads[i], shared
		if t.own {
			if s, err = c.stacks(&t.tables); err != nil {
				return d, fmt.Errorf("thread %d: %w", i, err)
			}
			t.tables = firefoxTables{}
			if withTimes {
				times.tables = append(times.tables, s)
			}
		}
		if err := c.thread(t, s); err != nil {
			return d, fmt.Errorf("thread %d: %w", i, err)
		}
		if withTimes {
			times.stacks = append(times.stacks, s)
		}
	}
	p, err := c.profile(c.meta())
	if err == nil {
		restore(p, f.run)
	}
	if err == nil && len(f.values) > 0 {
		f.derive(p)
	} else if err == nil && len(p.ValueTypes) > 1 {
		// The samples, as in the Firefox Profiler. Their markers come after them.
		p.Meta.Value = p.ValueTypes[0].Type
	}
	if err != nil {
		return d, err
	}
	d.Profile, d.Relative = p, c.relative
	if withTimes && times.complete() {
		f.shared, f.sources = firefoxTables{}, nil // the stacks remain
		d.Times = times
	}
	return d, nil
}

// firefoxReader converts a Firefox profile.
type firefoxReader struct {
	*collector
	ctx      context.Context
	in       *firefoxProfile
	libs     []profile.MappingID
	idle     int32 // the category of waits, -1 if there is none
	threads  bool  // profile by thread
	relative bool  // see [Decoded]
	// keep reserves n bytes of memory for the times. It is nil if they are not wanted.
	keep func(n int) error
}

// firefoxStacks are tables of stacks with the stacks that their rows became.
type firefoxStacks struct {
	table firefoxStackTable
	rows  []profile.StackID // by row of the stack table
	idle  []bool            // likewise

	// While stacks are interned, these are the other tables.
	*firefoxTables
	strings []string          // its own or the shared ones
	made    []profile.FrameID // by row of the frame table; 0 means not made yet

	// reasons holds the reasons of waits by rows of the frame table, if times are wanted.
	reasons map[int32]string
}

func (c *firefoxReader) meta() profile.Meta {
	m := c.in
	meta := profile.Meta{Command: m.product, Kernel: strings.TrimPrefix(m.oscpu, "Linux "), CPUs: max(m.cpus, 0)}
	const limit = 1 << 50 // in ms: far beyond all clocks, and without overflow
	if m.startTime > 0 && m.startTime < limit {
		meta.Start = time.UnixMicro(int64(m.startTime * 1000))
	}
	if d := m.profilingEnd - m.profilingStart; d > 0 && d < 1e9 {
		meta.Duration = time.Duration(d * 1e6)
	}
	if m.interval > 0 {
		meta.Frequency = uint64(math.Min(1000/m.interval, 1e9))
	}
	return meta
}

// at returns an element of a column, or an error if there is no such row.
func at[T any](column []T, row int32, name string) (T, error) {
	if row < 0 || int(row) >= len(column) {
		var none T
		return none, fmt.Errorf("row %d of %s, which has %d", row, name, len(column))
	}
	return column[row], nil
}

// stacks interns a stack table.
func (c *firefoxReader) stacks(t *firefoxTables) (*firefoxStacks, error) {
	s := &firefoxStacks{firefoxTables: t, table: t.stacks, strings: t.strings, made: make([]profile.FrameID, len(t.frames.function)), reasons: map[int32]string{}}
	if s.strings == nil {
		s.strings = c.in.shared.strings
	}
	if c.libs == nil {
		for _, l := range c.in.libs {
			c.libs = append(c.libs, c.Mapping(profile.Mapping{Path: l.path, BuildID: l.codeID}))
		}
	}
	table := &s.table
	if len(table.frame) != len(table.prefix) {
		return nil, fmt.Errorf("stackTable has %d frames and %d prefixes", len(table.frame), len(table.prefix))
	}
	s.rows, s.idle = make([]profile.StackID, len(table.frame)), make([]bool, len(table.frame))
	for i, row := range table.frame {
		if err := c.interrupted(i); err != nil {
			return nil, err
		}
		f, err := c.frame(s, row)
		if err != nil {
			return nil, fmt.Errorf("stack %d: %w", i, err)
		}
		parent, wasIdle := profile.StackID(0), false
		if caller, ok := table.caller(i); ok {
			if caller < 0 || caller >= i {
				return nil, fmt.Errorf("stack %d: its caller is stack %d", i, caller)
			}
			parent, wasIdle = s.rows[caller], s.idle[caller]
		}
		s.rows[i] = c.Push(parent, f)
		k, err := at(t.frames.category, row, "frameTable.category")
		if err != nil {
			return nil, err
		}
		s.idle[i] = k != null && k == c.idle || k == null && wasIdle
		if s.idle[i] && c.keep != nil {
			if err := c.keepReason(s, row); err != nil {
				return nil, err
			}
		}
	}
	s.firefoxTables, s.strings, s.made = nil, nil, nil
	return s, nil
}

// caller returns the row of the caller of stack i, if it has one.
func (t *firefoxStackTable) caller(i int) (row int, ok bool) {
	n := int(t.prefix[i])
	if t.offsets {
		return i - n, n != 0
	}
	return n, n != null
}

// keepReason keeps the reason of a wait whose last frame is given, if that frame is one of
// fulgur's notes.
func (c *firefoxReader) keepReason(s *firefoxStacks, frame int32) error {
	name, _ := s.name(frame) // it was read before
	reason, ok := strings.CutPrefix(name, "[off-CPU: ")
	if !ok {
		return nil
	}
	if reason, ok = strings.CutSuffix(reason, "]"); !ok {
		return nil
	}
	s.reasons[frame] = reason
	const size = 64 // of an entry here, and of one in the timeline for each row
	return c.keep(size)
}

// wait returns the stack of row i without its reason, and the reason. ok is false if the row
// is no wait or has no reason.
func (s *firefoxStacks) wait(i int32) (stack profile.StackID, reason string, ok bool) {
	if !s.idle[i] {
		return 0, "", false
	}
	reason, ok = s.reasons[s.table.frame[i]]
	if caller, called := s.table.caller(int(i)); ok && called {
		stack = s.rows[caller]
	}
	return stack, reason, ok
}

// name returns the name of the function of a frame.
func (s *firefoxStacks) name(frame int32) (string, error) {
	row, err := at(s.functions.name, s.frames.function[frame], "funcTable.name")
	if err != nil {
		return "", err
	}
	return at(s.strings, row, "stringArray")
}

// lib returns the index of the lib of a frame, negative if it has none.
func (s *firefoxStacks) lib(frame int32) (int32, error) {
	if s.frames.lib != nil {
		return at(s.frames.lib, frame, "frameTable.lib")
	}
	resource, err := at(s.functions.resource, s.frames.function[frame], "funcTable.resource")
	if err != nil || resource < 0 {
		return null, err
	}
	return at(s.resources, resource, "resourceTable.lib")
}

// interrupted returns the context's error, checking it at intervals.
func (c *firefoxReader) interrupted(i int) error {
	if i%(1<<10) == 0 { // names of a row may have MaxName bytes
		return c.ctx.Err()
	}
	return nil
}

// frame returns the frame of a row of the frame table.
func (c *firefoxReader) frame(s *firefoxStacks, row int32) (profile.FrameID, error) {
	known, err := at(s.made, row, "frameTable.func")
	if err != nil || known != 0 {
		return known, err
	}
	f, err := c.makeFrame(s, row)
	if err != nil {
		return 0, err
	}
	s.made[row] = c.Frame(f)
	return s.made[row], nil
}

// makeFrame reads a row of the frame table.
func (c *firefoxReader) makeFrame(s *firefoxStacks, row int32) (f profile.Frame, err error) {
	t := &s.frames
	fn := t.function[row]
	lib, err := s.lib(row)
	if err != nil {
		return f, err
	}
	address, err := at(t.address, row, "frameTable.address")
	if err != nil {
		return f, err
	}
	name, err := s.name(row)
	if err != nil {
		return f, err
	}
	if lib >= 0 {
		if f.Mapping, err = at(c.libs, lib, "libs"); err != nil {
			return f, err
		}
	}
	if address >= 0 {
		f.Address = uint64(address) // within the instruction
	}
	if depth, err := at(t.depth, row, "frameTable.inlineDepth"); err == nil {
		f.Inlined = depth > 0
	}
	if line, err := at(t.line, row, "frameTable.line"); err == nil {
		f.Line = int(max(line, 0))
	}
	if column, err := at(t.column, row, "frameTable.column"); err == nil {
		f.Column = int(max(column, 0))
	}
	f.Kind = c.kind(s, row, lib)
	if lib >= 0 && address >= 0 && name == fmt.Sprintf("0x%x", address) {
		c.relative = true // samply's name of a frame without one
		return f, nil
	}
	if at := unresolved.FindStringSubmatch(name); at != nil {
		shown, _ := strconv.ParseUint(at[1], 16, 64) // at most 16 digits
		// The library's base, between the two, is even.
		f.Address, f.Return = shown, address >= 0 && (shown-f.Address)%2 == 1
	} else {
		made := profile.Function{Name: name, SystemName: name}
		if made.File, made.StartLine, err = c.source(s, fn); err != nil {
			return f, err
		}
		f.Function = c.Function(made)
	}
	return f, nil
}

// unresolved matches names that stand for an address: "[libfoo.so+0x12]".
var unresolved = regexp.MustCompile(`^\[.*\+0x([0-9a-f]{1,16})\]$`)

// source returns the source position of function fn.
func (c *firefoxReader) source(s *firefoxStacks, fn int32) (file string, line int, err error) {
	t := s.functions
	if n, err := at(t.line, fn, ""); err == nil {
		line = int(max(n, 0))
	}
	row := int32(null)
	switch {
	case fn >= 0 && int(fn) < len(t.source) && t.source[fn] != null:
		if row, err = at(c.in.sources, t.source[fn], "sources.filename"); err != nil {
			return "", 0, err
		}
	case fn >= 0 && int(fn) < len(t.file):
		row = t.file[fn]
	}
	if row == null {
		return "", line, nil
	}
	file, err = at(s.strings, row, "stringArray")
	return file, line, err
}

// kind returns the kind of code of a frame, by fulgur's category for it.
func (c *firefoxReader) kind(s *firefoxStacks, row, lib int32) profile.Kind {
	name := ""
	if k, err := at(s.frames.category, row, ""); err == nil {
		if category, err := at(c.in.categories, k, ""); err == nil {
			name = category
		}
	}
	switch {
	case name == "Kernel":
		return profile.KindKernel
	case name == "JIT":
		return profile.KindJIT
	case lib < 0 && (name == "Idle" || name == "Other"):
		return profile.KindMarker
	}
	return profile.KindUser
}

// task returns the thread's task.
func (t *firefoxThread) task() profile.Task {
	return profile.Task{Comm: t.name, PID: leadingNumber(t.pid), TID: cmp.Or(leadingNumber(t.tid), number32(t.tidNumber))}
}

// leadingNumber returns the number at the start of text, or 0 if there is none, or if it is part of a
// name. IDs that occur again have a suffix, such as "42.1".
func leadingNumber(text string) int {
	end := 0
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(text[:end], 10, 32)
	if err != nil || end < len(text) && text[end] != '.' && text[end] != '-' {
		return 0
	}
	return int(n)
}

// number32 returns a process or thread ID, or 0 if it is not one.
func number32(v float64) int {
	if v < 0 || v > math.MaxInt32 {
		return 0
	}
	return int(v)
}

// derive adds the values that are parts of others.
func (f *firefoxProfile) derive(p *profile.Profile) {
	for v, of := range f.values {
		if of.Each > 0 {
			for i := range p.Samples {
				p.Samples[i].Values[v] = p.Samples[i].Values[of.Of] / of.Each
			}
		}
	}
}

// pseudo returns the name of the quantity by which a pseudo-thread weights stacks, or ""
// for a real thread.
func (t *firefoxThread) pseudo() string {
	kind, ok := strings.CutPrefix(t.tid, t.pid+"-")
	if !ok {
		return ""
	}
	return kind
}

// values returns the value of a thread's samples, the value of its idle samples, and the
// amount that a weight of 1 adds to them.
func (t *firefoxThread) values() (value, off profile.ValueType, scale float64) {
	value, scale = cpuTime, 1e6
	if !t.ofFulgur && t.weightType == "tracing-ms" {
		value.Type = "time" // wall-clock time, for all that is known
	}
	switch t.weightType {
	case "bytes":
		value, scale = profile.ValueType{Type: "bytes", Unit: "bytes"}, 1
	case "samples", "": // the front end's default
		value, scale = profile.ValueType{Type: "samples", Unit: "count"}, 1
	}
	if kind := t.pseudo(); kind != "" {
		value.Type = kind
		return value, value, scale
	}
	if t.weightType == "tracing-ms" {
		return value, profile.OffCPUTime, scale
	}
	return value, value, scale
}

// thread adds the samples of a thread.
func (c *firefoxReader) thread(t *firefoxThread, tables *firefoxStacks) error {
	value, off, scale := t.values()
	task := t.task()
	if !c.threads {
		task.TID = 0
	}
	var on int // on-CPU comes first
	idle := -1
	switch {
	case t.value > 0 && t.value <= len(c.in.values):
		on = t.value - 1
		idle, task.Comm = on, t.processName
	case t.value > 0:
		return fmt.Errorf("value %d of %d", t.value-1, len(c.in.values))
	default:
		if t.pseudo() != "" {
			task.Comm, task.TID = t.processName, 0
		}
		on = c.Value(value)
	}
	id := c.Task(task)
	for i, row := range t.stack {
		if err := c.interrupted(i); err != nil {
			return err
		}
		weight := 1.0
		if t.weighs {
			var err error
			if weight, err = at(t.weight, int32(i), "samples.weight"); err != nil {
				return err
			}
		}
		where, v := profile.Sample{Task: id, CPU: -1}, on
		if row != null {
			s, err := at(tables.rows, row, "stackTable")
			if err != nil {
				return err
			}
			where.Stack = s
			if tables.idle[row] {
				if idle < 0 {
					idle = c.Value(off)
				}
				v = idle
			}
		}
		if weight *= scale; !(math.Abs(weight) <= 1<<62) { // or not a number
			return fmt.Errorf("sample %d weighs %v", i, weight)
		}
		c.Count(where, v, int64(math.Round(weight)))
	}
	return nil
}
