package decode

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/profile"
)

// firefoxVersion is the version of the processed format that is read, which
// fulgur writes.
const firefoxVersion = 70

// firefoxProfile is what is read of a profile of the Firefox Profiler.
type firefoxProfile struct {
	Meta struct {
		StartTime, ProfilingStartTime, ProfilingEndTime float64
		Interval                                        float64
		PreprocessedProfileVersion                      int
		Categories                                      []struct{ Name string }
		Product, Oscpu                                  string
		LogicalCPUs                                     int
	}
	Libs []struct {
		Path   string
		CodeID *string
	}
	Shared struct {
		StringArray []string
		StackTable  struct{ Frame, PrefixOffset []int }
		FrameTable  struct {
			Address                []int64
			Lib, InlineDepth, Func []int
			Category               []*int
			Line                   []*int
		}
		FuncTable struct {
			Name               []int
			Source, LineNumber []*int
		}
		Sources struct{ Filename []int }
	}
	Threads []firefoxThread
}

type firefoxThread struct {
	Name, ProcessName, PID string
	TID                    any
	Samples                struct {
		Stack      []*int
		Weight     []float64
		WeightType string
	}
}

// readFirefox reads a profile of the Firefox Profiler: what its samples add up
// to, without their times. Samples in time are "cpu" or "off-cpu"; the
// pseudo-threads that weigh stacks by something else are values of their own.
func readFirefox(r io.Reader) (*profile.Profile, error) {
	in := io.LimitedReader{R: r, N: mostBytes}
	var f firefoxProfile
	if err := json.NewDecoder(&in).Decode(&f); err != nil {
		if in.N <= 0 {
			return nil, fmt.Errorf("more than %d bytes", mostBytes)
		}
		return nil, err
	}
	if v := f.Meta.PreprocessedProfileVersion; v != firefoxVersion {
		return nil, fmt.Errorf("version %d of the processed format; only %d is read", v, firefoxVersion)
	}
	c := &firefoxReader{collector: newCollector(), in: &f, called: make([]bool, len(f.Shared.FrameTable.Func))}
	for i := range f.Threads {
		t := f.Threads[i].task()
		c.threads = c.threads || t.TID != t.PID
	}
	if err := c.stacks(); err != nil {
		return nil, err
	}
	for i := range f.Threads {
		if err := c.thread(&f.Threads[i]); err != nil {
			return nil, fmt.Errorf("thread %d: %w", i, err)
		}
	}
	return c.profile(c.meta())
}

// firefoxReader makes a profile of a Firefox profile.
type firefoxReader struct {
	*collector
	in   *firefoxProfile
	rows []profile.StackID // by row of the stack table
	idle []bool            // likewise
	libs []profile.MappingID
	// called holds by row of the frame table whether another frame was called
	// there: its address is then within the call.
	called  []bool
	threads bool // threads are told apart
}

func (c *firefoxReader) meta() profile.Meta {
	m := c.in.Meta
	meta := profile.Meta{Command: m.Product, Kernel: strings.TrimPrefix(m.Oscpu, "Linux "), CPUs: m.LogicalCPUs}
	const limit = 1 << 50 // in ms: far beyond all clocks, and no overflow
	if m.StartTime > 0 && m.StartTime < limit {
		meta.Start = time.UnixMicro(int64(m.StartTime * 1000))
	}
	if d := m.ProfilingEndTime - m.ProfilingStartTime; d > 0 && d < 1e9 {
		meta.Duration = time.Duration(d * 1e6)
	}
	if m.Interval > 0 {
		meta.Frequency = uint64(math.Min(1000/m.Interval, 1e9))
	}
	return meta
}

// at returns an element of a column, or an error for a row that is not there.
func at[T any](column []T, row int, name string) (T, error) {
	if row < 0 || row >= len(column) {
		var none T
		return none, fmt.Errorf("row %d of %s, which has %d", row, name, len(column))
	}
	return column[row], nil
}

// stacks interns the table of stacks.
func (c *firefoxReader) stacks() error {
	for _, l := range c.in.Libs {
		m := profile.Mapping{Path: l.Path}
		if l.CodeID != nil {
			m.BuildID = *l.CodeID
		}
		c.libs = append(c.libs, c.Mapping(m))
	}
	idle := -1
	for i, k := range c.in.Meta.Categories {
		if k.Name == "Idle" {
			idle = i
		}
	}
	table := c.in.Shared.StackTable
	if len(table.Frame) != len(table.PrefixOffset) {
		return fmt.Errorf("stackTable has %d frames and %d prefixes", len(table.Frame), len(table.PrefixOffset))
	}
	c.findCalls()
	for i, row := range table.Frame {
		f, err := c.frameAt(row)
		if err != nil {
			return fmt.Errorf("stack %d: %w", i, err)
		}
		parent, wasIdle := profile.StackID(0), false
		if offset := table.PrefixOffset[i]; offset != 0 {
			if offset < 0 || offset > i {
				return fmt.Errorf("stack %d: caller %d rows before", i, offset)
			}
			parent, wasIdle = c.rows[i-offset], c.idle[i-offset]
		}
		c.rows = append(c.rows, c.Push(parent, c.Frame(f)))
		k, err := at(c.in.Shared.FrameTable.Category, row, "frameTable.category")
		if err != nil {
			return err
		}
		c.idle = append(c.idle, k != nil && *k == idle || k == nil && wasIdle)
	}
	return nil
}

// findCalls finds the frames that call others: those under a frame that is not
// inlined, with what they are inlined into, unless that is where the kernel was
// entered.
func (c *firefoxReader) findCalls() {
	table, frames := c.in.Shared.StackTable, c.in.Shared.FrameTable
	for i, row := range table.Frame {
		depth, err := at(frames.InlineDepth, row, "")
		for up := table.PrefixOffset[i]; err == nil && depth == 0 && up > 0 && up <= i; {
			caller := table.Frame[i-up]
			if caller < 0 || caller >= len(c.called) || c.called[caller] || c.kind(row, 0) == profile.KindKernel && c.kind(caller, 0) != profile.KindKernel {
				break
			}
			c.called[caller] = true
			if outer, err := at(frames.InlineDepth, caller, ""); err != nil || outer == 0 {
				break
			}
			up += table.PrefixOffset[i-up]
		}
	}
}

// frameAt returns a row of the frame table.
func (c *firefoxReader) frameAt(row int) (f profile.Frame, err error) {
	t, s := c.in.Shared.FrameTable, c.in.Shared
	fn, err := at(t.Func, row, "frameTable.func")
	if err != nil {
		return f, err
	}
	lib, err := at(t.Lib, row, "frameTable.lib")
	if err != nil {
		return f, err
	}
	address, err := at(t.Address, row, "frameTable.address")
	if err != nil {
		return f, err
	}
	nameRow, err := at(s.FuncTable.Name, fn, "funcTable.name")
	if err != nil {
		return f, err
	}
	name, err := at(s.StringArray, nameRow, "stringArray")
	if err != nil {
		return f, err
	}
	if lib >= 0 {
		if f.Mapping, err = at(c.libs, lib, "libs"); err != nil {
			return f, err
		}
	}
	if address >= 0 {
		f.Address = uint64(address)
		if c.called[row] {
			f.Address++
		}
	}
	if depth, err := at(t.InlineDepth, row, "frameTable.inlineDepth"); err == nil {
		f.Inlined = depth > 0
	}
	if line, err := at(t.Line, row, "frameTable.line"); err == nil && line != nil {
		f.Line = *line
	}
	f.Kind = c.kind(row, lib)
	if at := unresolved.FindStringSubmatch(name); at != nil {
		f.Address, _ = strconv.ParseUint(at[1], 16, 64) // at most 16 digits
	} else {
		made := profile.Function{Name: name, SystemName: name}
		if made.File, made.StartLine, err = c.source(fn); err != nil {
			return f, err
		}
		f.Function = c.Function(made)
	}
	return f, nil
}

// unresolved are names that stand for an address: "[libfoo.so+0x12]".
var unresolved = regexp.MustCompile(`^\[.*\+0x([0-9a-f]{1,16})\]$`)

// source returns where function fn is.
func (c *firefoxReader) source(fn int) (file string, line int, err error) {
	t := c.in.Shared.FuncTable
	if fn < len(t.LineNumber) && t.LineNumber[fn] != nil {
		line = *t.LineNumber[fn]
	}
	if fn >= len(t.Source) || t.Source[fn] == nil {
		return "", line, nil
	}
	row, err := at(c.in.Shared.Sources.Filename, *t.Source[fn], "sources.filename")
	if err != nil {
		return "", 0, err
	}
	file, err = at(c.in.Shared.StringArray, row, "stringArray")
	return file, line, err
}

// kind tells what sort of code a frame is, by the category that fulgur gives it.
func (c *firefoxReader) kind(row, lib int) profile.Kind {
	name := ""
	if k, err := at(c.in.Shared.FrameTable.Category, row, ""); err == nil && k != nil {
		if category, err := at(c.in.Meta.Categories, *k, ""); err == nil {
			name = category.Name
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
	task := profile.Task{Comm: t.Name}
	_, _ = fmt.Sscan(t.PID, &task.PID) // a number, and perhaps more
	switch tid := t.TID.(type) {
	case float64:
		task.TID = int(tid)
	case string:
		_, _ = fmt.Sscan(tid, &task.TID) // likewise
	}
	return task
}

// pseudo returns what a thread weighs stacks by that is none, as fulgur names it,
// or "".
func (t *firefoxThread) pseudo() string {
	tid, _ := t.TID.(string)
	kind, ok := strings.CutPrefix(tid, t.PID+"-")
	if !ok {
		return ""
	}
	return kind
}

// thread adds the samples of a thread.
func (c *firefoxReader) thread(t *firefoxThread) error {
	value, scale := profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, 1e6
	off := profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}
	switch t.Samples.WeightType {
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
		value.Type, task.Comm, task.TID = kind, t.ProcessName, 0
		off = value
	}
	if t.Samples.WeightType != "tracing-ms" {
		off = value
	}
	id := c.Task(task)
	c.Value(value) // on the CPU comes first
	for i, row := range t.Samples.Stack {
		weight := 1.0
		if t.Samples.Weight != nil {
			var err error
			if weight, err = at(t.Samples.Weight, i, "samples.weight"); err != nil {
				return err
			}
		}
		where, v := profile.Sample{Task: id, CPU: -1}, value
		if row != nil {
			s, err := at(c.rows, *row, "stackTable")
			if err != nil {
				return err
			}
			where.Stack = s
			if c.idle[*row] {
				v = off
			}
		}
		if weight *= scale; math.Abs(weight) > 1<<62 {
			return fmt.Errorf("sample %d weighs %v", i, weight)
		}
		c.Count(where, c.Value(v), int64(math.Round(weight)))
	}
	return nil
}
