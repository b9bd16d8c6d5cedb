package decode

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/profile"
)

// firefoxVersion is the supported version of the processed format, which is the one that
// fulgur writes.
const firefoxVersion = 70

// readFirefox reads a profile of the Firefox Profiler and adds up its samples, without
// their times. Samples in time are "cpu" or "off-cpu". The pseudo-threads that weight
// stacks by another quantity become values.
func readFirefox(ctx context.Context, r *bufio.Reader) (*profile.Profile, error) {
	parser := firefoxParser{jsonReader: jsonReader{r: r}, left: profile.MaxHeld}
	if err := parser.parse(); err != nil {
		return nil, err
	}
	f := &parser.profile
	if f.version != firefoxVersion {
		return nil, fmt.Errorf("version %d of the processed format; only %d is read", f.version, firefoxVersion)
	}
	c := &firefoxReader{
		collector: newCollector(), ctx: ctx, in: f,
		frames: make([]profile.FrameID, len(f.frames.function)),
	}
	for i := range f.threads {
		t := f.threads[i].task()
		c.threads = c.threads || t.TID != t.PID
	}
	if err := c.stacks(); err != nil {
		return nil, err
	}
	for i := range f.threads {
		if err := c.thread(&f.threads[i]); err != nil {
			return nil, fmt.Errorf("thread %d: %w", i, err)
		}
	}
	p, err := c.profile(c.meta())
	if err == nil {
		restore(p, f.run)
	}
	if err == nil && len(p.ValueTypes) > 1 {
		// The samples, as in the Firefox Profiler. Their markers come after them.
		p.Meta.Value = p.ValueTypes[0].Type
	}
	return p, err
}

// firefoxReader converts a Firefox profile.
type firefoxReader struct {
	*collector
	ctx     context.Context
	in      *firefoxProfile
	rows    []profile.StackID // by row of the stack table
	idle    []bool            // likewise
	frames  []profile.FrameID // by row of the frame table; 0 means not made yet
	libs    []profile.MappingID
	threads bool // profile by thread
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

// stacks interns the stack table.
func (c *firefoxReader) stacks() error {
	for _, l := range c.in.libs {
		c.libs = append(c.libs, c.Mapping(profile.Mapping{Path: l.path, BuildID: l.codeID}))
	}
	idle := int32(-1)
	for i, name := range c.in.categories {
		if name == "Idle" {
			idle = int32(i)
		}
	}
	table := c.in.stacks
	if len(table.frame) != len(table.prefix) {
		return fmt.Errorf("stackTable has %d frames and %d prefixes", len(table.frame), len(table.prefix))
	}
	c.rows, c.idle = make([]profile.StackID, len(table.frame)), make([]bool, len(table.frame))
	for i, row := range table.frame {
		if err := c.interrupted(i); err != nil {
			return err
		}
		f, err := c.frame(row)
		if err != nil {
			return fmt.Errorf("stack %d: %w", i, err)
		}
		parent, wasIdle := profile.StackID(0), false
		if offset := int(table.prefix[i]); offset != 0 {
			if offset < 0 || offset > i {
				return fmt.Errorf("stack %d: caller %d rows before", i, offset)
			}
			parent, wasIdle = c.rows[i-offset], c.idle[i-offset]
		}
		c.rows[i] = c.Push(parent, f)
		k, err := at(c.in.frames.category, row, "frameTable.category")
		if err != nil {
			return err
		}
		c.idle[i] = k != null && k == idle || k == null && wasIdle
	}
	return nil
}

// interrupted returns the context's error, checking it at intervals.
func (c *firefoxReader) interrupted(i int) error {
	if i%(1<<16) == 0 {
		return c.ctx.Err()
	}
	return nil
}

// frame returns the frame of a row of the frame table.
func (c *firefoxReader) frame(row int32) (profile.FrameID, error) {
	known, err := at(c.frames, row, "frameTable.func")
	if err != nil || known != 0 {
		return known, err
	}
	f, err := c.makeFrame(row)
	if err != nil {
		return 0, err
	}
	c.frames[row] = c.Frame(f)
	return c.frames[row], nil
}

// makeFrame reads a row of the frame table.
func (c *firefoxReader) makeFrame(row int32) (f profile.Frame, err error) {
	t := &c.in.frames
	fn := t.function[row]
	lib, err := at(t.lib, row, "frameTable.lib")
	if err != nil {
		return f, err
	}
	address, err := at(t.address, row, "frameTable.address")
	if err != nil {
		return f, err
	}
	nameRow, err := at(c.in.functions.name, fn, "funcTable.name")
	if err != nil {
		return f, err
	}
	name, err := at(c.in.strings, nameRow, "stringArray")
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
	f.Kind = c.kind(row, lib)
	if at := unresolved.FindStringSubmatch(name); at != nil {
		shown, _ := strconv.ParseUint(at[1], 16, 64) // at most 16 digits
		// The library's base, between the two, is even.
		f.Address, f.Return = shown, address >= 0 && (shown-f.Address)%2 == 1
	} else {
		made := profile.Function{Name: name, SystemName: name}
		if made.File, made.StartLine, err = c.source(fn); err != nil {
			return f, err
		}
		f.Function = c.Function(made)
	}
	return f, nil
}

// unresolved matches names that stand for an address: "[libfoo.so+0x12]".
var unresolved = regexp.MustCompile(`^\[.*\+0x([0-9a-f]{1,16})\]$`)

// source returns the source position of function fn.
func (c *firefoxReader) source(fn int32) (file string, line int, err error) {
	t := c.in.functions
	if n, err := at(t.line, fn, ""); err == nil {
		line = int(max(n, 0))
	}
	if fn < 0 || int(fn) >= len(t.source) || t.source[fn] == null { // older versions have no source table
		return "", line, nil
	}
	source := t.source[fn]
	row, err := at(c.in.sources, source, "sources.filename")
	if err != nil {
		return "", 0, err
	}
	file, err = at(c.in.strings, row, "stringArray")
	return file, line, err
}

// kind returns the kind of code of a frame, by fulgur's category for it.
func (c *firefoxReader) kind(row, lib int32) profile.Kind {
	name := ""
	if k, err := at(c.in.frames.category, row, ""); err == nil {
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

// leadingNumber returns the number at the start of text, or 0 if there is none.
func leadingNumber(text string) int {
	end := 0
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(text[:end], 10, 32)
	if err != nil {
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

// pseudo returns the name of the quantity by which a pseudo-thread weights stacks, or ""
// for a real thread.
func (t *firefoxThread) pseudo() string {
	kind, ok := strings.CutPrefix(t.tid, t.pid+"-")
	if !ok {
		return ""
	}
	return kind
}

// thread adds the samples of a thread.
func (c *firefoxReader) thread(t *firefoxThread) error {
	value, scale := profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, 1e6
	off := profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}
	switch t.weightType {
	case "bytes":
		value, scale = profile.ValueType{Type: "bytes", Unit: "bytes"}, 1
	case "samples":
		value, scale = profile.ValueType{Type: "samples", Unit: "count"}, 1
	}
	task := t.task()
	if !c.threads {
		task.TID = 0
	}
	if kind := t.pseudo(); kind != "" {
		value.Type, task.Comm, task.TID = kind, t.processName, 0
		off = value
	}
	if t.weightType != "tracing-ms" {
		off = value
	}
	id := c.Task(task)
	on, idle := c.Value(value), -1 // on-CPU comes first
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
			s, err := at(c.rows, row, "stackTable")
			if err != nil {
				return err
			}
			where.Stack = s
			if c.idle[row] {
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
