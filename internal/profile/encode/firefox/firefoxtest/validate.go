// Package firefoxtest checks profiles in the Firefox Profiler's processed format. The
// front end silently accepts an index out of range, so only a check finds it.
package firefoxtest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
)

// Version is the supported version of the processed format.
const Version = 70

// Check fails the test if data, gzipped or not, is not a valid profile. It returns the
// profile.
func Check(t testing.TB, data []byte) *Profile {
	t.Helper()
	p, err := Parse(data)
	if err != nil {
		t.Fatalf("Firefox profile: %v", err)
	}
	if err := p.Validate(); err != nil {
		t.Errorf("Firefox profile: %v", err)
	}
	return p
}

// Profile holds the fields for checks and tests.
type Profile struct {
	Meta struct {
		Interval, StartTime                 *float64
		ProcessType, Version, Stackwalk     *int
		PreprocessedProfileVersion          int
		Product                             *string
		Symbolicated                        bool
		SampleUnits                         map[string]string
		Categories                          []Category
		MarkerSchema                        []Schema
		InitialVisibleThreads               []int
		InitialSelectedThreads              []int
		ProfilingStartTime                  float64
		ProfilingEndTime                    float64
		CPUName                             string
		MainMemory                          uint64
		LogicalCPUs                         int
		StartTimeAsClockMonotonicNanosecond int64 `json:"startTimeAsClockMonotonicNanosecondsSinceBoot"`
		Extra                               []struct {
			Label   string
			Entries []struct{ Label, Format, Value string }
		}
	}
	Libs     []Lib
	Shared   Shared
	Threads  []Thread
	Counters []Counter
}

// Category is an entry of meta.categories.
type Category struct {
	Name, Color   string
	Subcategories []string
}

// Schema is an entry of meta.markerSchema.
type Schema struct {
	Name    string
	Display []string
	Fields  []struct{ Key, Label, Format string }
}

// Lib is an entry of libs.
type Lib struct {
	Arch, Name, Path, DebugName, DebugPath, BreakpadID *string
	CodeID                                             *string
}

// Table is a table by columns.
type Table map[string]json.RawMessage

// Shared holds the tables shared by all threads.
type Shared struct {
	StringArray                                                                                   []string
	StackTable, FrameTable, FuncTable, ResourceTable, NativeSymbols, Sources, SourceLocationTable Table
}

// Thread is a thread.
type Thread struct {
	Name, ProcessName, PID *string
	IsMainThread           *bool
	TID                    any
	PausedRanges           []any
	RegisterTime           *float64
	Samples, Markers       Table
}

// Counter is a counter.
type Counter struct {
	Name, Category, Description, PID *string
	MainThreadIndex                  int
	Samples                          Table
	Display                          map[string]json.RawMessage
}

// Parse reads a profile, gzipped or not.
func Parse(data []byte) (*Profile, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		if data, err = io.ReadAll(z); err != nil {
			return nil, err
		}
	}
	var p Profile
	return &p, json.Unmarshal(data, &p)
}

// Numbers returns a column of numbers, with missing in place of null.
func (t Table) Numbers(name string, missing float64) ([]float64, error) {
	raw, ok := t[name]
	if !ok {
		return nil, fmt.Errorf("column %q is missing", name)
	}
	var column []*float64
	if err := json.Unmarshal(raw, &column); err != nil {
		return nil, fmt.Errorf("column %q: %w", name, err)
	}
	numbers := make([]float64, len(column))
	for i, n := range column {
		numbers[i] = missing
		if n != nil {
			numbers[i] = *n
		}
	}
	return numbers, nil
}

// checker collects problems.
type checker struct {
	p    *Profile
	errs []error
}

// maxErrors is the maximum number of reported problems.
const maxErrors = 20

func (c *checker) errorf(format string, args ...any) {
	if len(c.errs) < maxErrors {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

// Validate returns structural errors: missing or short columns, indexes out of range,
// stacks before their callers, unsorted times, names that are not unique.
func (p *Profile) Validate() error {
	c := &checker{p: p}
	c.meta()
	c.libs()
	c.shared()
	c.threads()
	c.counters()
	return errors.Join(c.errs...)
}

// colors are the front end's colors for categories.
var colors = []string{
	"transparent", "purple", "green", "orange", "yellow", "lightblue", "blue", "brown", "magenta", "red", "lightred", "darkgrey", "grey",
}

func (c *checker) meta() {
	m := c.p.Meta
	if m.PreprocessedProfileVersion != Version {
		c.errorf("version %d of the format, not %d", m.PreprocessedProfileVersion, Version)
	}
	if m.Interval == nil || *m.Interval <= 0 || m.StartTime == nil || m.ProcessType == nil || m.Version == nil || m.Stackwalk == nil || m.Product == nil {
		c.errorf("meta lacks interval, startTime, processType, version, stackwalk or product")
	}
	if m.MarkerSchema == nil {
		c.errorf("meta.markerSchema is missing")
	}
	grey := false
	for _, k := range m.Categories {
		grey = grey || k.Color == "grey"
		if !slices.Contains(colors, k.Color) || len(k.Subcategories) == 0 || k.Subcategories[0] != "Other" {
			c.errorf("category %q: color %q, subcategories %q", k.Name, k.Color, k.Subcategories)
		}
	}
	if !grey {
		c.errorf("no category is grey")
	}
	for _, list := range [][]int{m.InitialVisibleThreads, m.InitialSelectedThreads} {
		for _, i := range list {
			if i < 0 || i >= len(c.p.Threads) {
				c.errorf("initial thread %d of %d", i, len(c.p.Threads))
			}
		}
	}
}

func (c *checker) libs() {
	for i, l := range c.p.Libs {
		for _, s := range []*string{l.Arch, l.Name, l.Path, l.DebugName, l.DebugPath, l.BreakpadID} {
			if s == nil {
				c.errorf("lib %d lacks a name", i)
			}
		}
		if l.BreakpadID != nil && len(*l.BreakpadID) != 33 {
			c.errorf("lib %d: breakpadId %q", i, *l.BreakpadID)
		}
	}
}

// column returns a column, which must have n numbers.
func (c *checker) column(where string, t Table, name string, n int) []float64 {
	const missing = -1
	column, err := t.Numbers(name, missing)
	if err != nil {
		c.errorf("%s: %v", where, err)
		return nil
	}
	if len(column) != n {
		c.errorf("%s.%s has %d rows of %d", where, name, len(column), n)
		return nil
	}
	return column
}

// index checks a column of indexes into a table of limit rows. If optional, null and -1
// are allowed.
func (c *checker) index(where string, t Table, name string, n, limit int, optional bool) []float64 {
	column := c.column(where, t, name, n)
	for i, v := range column {
		if v == -1 && optional {
			continue
		}
		if v != float64(int(v)) || v < 0 || v >= float64(limit) {
			c.errorf("%s.%s[%d] is %v of %d", where, name, i, v, limit)
			break
		}
	}
	return column
}

// length returns the declared number of rows of a table.
func (c *checker) length(where string, t Table) int {
	n := -1
	if err := json.Unmarshal(t["length"], &n); err != nil || n < 0 {
		c.errorf("%s.length: %s", where, t["length"])
		return 0
	}
	return n
}

// present checks columns with arbitrary values.
func (c *checker) present(where string, t Table, n int, names ...string) {
	for _, name := range names {
		var column []json.RawMessage
		if err := json.Unmarshal(t[name], &column); err != nil || len(column) != n {
			c.errorf("%s.%s has %d rows of %d (%v)", where, name, len(column), n, err)
		}
	}
}

func (c *checker) shared() {
	s := c.p.Shared
	texts := len(s.StringArray)
	seen := map[string]bool{}
	for _, text := range s.StringArray {
		if seen[text] {
			c.errorf("%q is in stringArray twice", text)
		}
		seen[text] = true
	}
	stacks, frames := c.length("stackTable", s.StackTable), c.length("frameTable", s.FrameTable)
	functions, natives := c.length("funcTable", s.FuncTable), c.length("nativeSymbols", s.NativeSymbols)
	resources, sources := c.length("resourceTable", s.ResourceTable), c.length("sources", s.Sources)

	c.index("stackTable", s.StackTable, "frame", stacks, frames, false)
	for i, v := range c.column("stackTable", s.StackTable, "prefixOffset", stacks) {
		if v < 0 || v > float64(i) {
			c.errorf("stackTable.prefixOffset[%d] is %v", i, v)
			break
		}
	}
	libs := c.index("frameTable", s.FrameTable, "lib", frames, len(c.p.Libs), true)
	addresses := c.column("frameTable", s.FrameTable, "address", frames)
	depths := c.index("frameTable", s.FrameTable, "inlineDepth", frames, 256, false)
	c.index("frameTable", s.FrameTable, "func", frames, functions, false)
	symbols := c.index("frameTable", s.FrameTable, "nativeSymbol", frames, natives, true)
	c.present("frameTable", s.FrameTable, frames, "innerWindowID", "line", "column", "originalLocation")
	categories := c.index("frameTable", s.FrameTable, "category", frames, len(c.p.Meta.Categories), true)
	subs := c.column("frameTable", s.FrameTable, "subcategory", frames)
	symbolLibs := c.index("nativeSymbols", s.NativeSymbols, "libIndex", natives, len(c.p.Libs), false)
	starts := c.column("nativeSymbols", s.NativeSymbols, "address", natives)
	c.index("nativeSymbols", s.NativeSymbols, "name", natives, texts, false)
	c.present("nativeSymbols", s.NativeSymbols, natives, "functionSize")
	if len(c.errs) > 0 {
		return
	}
	for i := range frames {
		if k := categories[i]; k >= 0 && (subs[i] < 0 || subs[i] >= float64(len(c.p.Meta.Categories[int(k)].Subcategories))) {
			c.errorf("frame %d: subcategory %v of category %v", i, subs[i], k)
		}
		if (addresses[i] >= 0) && libs[i] < 0 || addresses[i] >= 1<<53 {
			c.errorf("frame %d: address %v in library %v", i, addresses[i], libs[i])
		}
		if n := symbols[i]; n >= 0 && (symbolLibs[int(n)] != libs[i] || starts[int(n)] > addresses[i] && depths[i] == 0) {
			c.errorf("frame %d at %v in library %v has symbol %v at %v in library %v", i, addresses[i], libs[i], n, starts[int(n)], symbolLibs[int(n)])
		}
	}
	c.inlined(addresses, libs, depths, symbols)

	c.index("funcTable", s.FuncTable, "name", functions, texts, false)
	c.index("funcTable", s.FuncTable, "resource", functions, resources, true)
	c.index("funcTable", s.FuncTable, "source", functions, sources, true)
	c.present("funcTable", s.FuncTable, functions, "isJS", "relevantForJS", "lineNumber", "columnNumber", "originalLocation")
	c.index("resourceTable", s.ResourceTable, "name", resources, texts, false)
	c.present("resourceTable", s.ResourceTable, resources, "host", "type")
	c.index("sources", s.Sources, "filename", sources, texts, false)
	c.present("sources", s.Sources, sources, "id", "startLine", "startColumn", "sourceMapURL", "content")
	c.present("sourceLocationTable", s.SourceLocationTable, c.length("sourceLocationTable", s.SourceLocationTable), "source", "line", "column")
}

// inlined checks that the stack of an inlined frame continues with the frame that
// contains it.
func (c *checker) inlined(addresses, libs, depths, symbols []float64) {
	s := c.p.Shared.StackTable
	frames, _ := s.Numbers("frame", -1)
	offsets, _ := s.Numbers("prefixOffset", -1)
	for i := range frames {
		f := int(frames[i])
		if depths[f] == 0 {
			continue
		}
		parent := int(frames[i-int(offsets[i])])
		if offsets[i] == 0 || depths[parent] != depths[f]-1 || addresses[parent] != addresses[f] || libs[parent] != libs[f] || symbols[parent] != symbols[f] {
			c.errorf("stack %d: frame %d is inlined %v deep, but not into frame %d", i, f, depths[f], parent)
			return
		}
	}
}

// times checks a column of times or time differences.
func (c *checker) times(where string, t Table, n int) {
	if _, ok := t["timeDeltas"]; ok {
		for i, delta := range c.column(where, t, "timeDeltas", n) {
			if i > 0 && delta < 0 {
				c.errorf("%s.timeDeltas[%d] is %v", where, i, delta)
			}
		}
		return
	}
	if !slices.IsSorted(c.column(where, t, "time", n)) {
		c.errorf("%s.time is not sorted", where)
	}
}

func (c *checker) threads() {
	tids, mains := map[any]bool{}, map[string]int{}
	for i, t := range c.p.Threads {
		where := fmt.Sprintf("thread %d", i)
		if t.Name == nil || t.PID == nil || t.IsMainThread == nil || t.TID == nil || t.PausedRanges == nil || t.RegisterTime == nil {
			c.errorf("%s lacks name, pid, tid, isMainThread, pausedRanges or registerTime", where)
			continue
		}
		if tids[t.TID] {
			c.errorf("%s: tid %v is taken", where, t.TID)
		}
		tids[t.TID] = true
		if _, ok := mains[*t.PID]; !ok {
			mains[*t.PID] = 0
		}
		if *t.IsMainThread {
			mains[*t.PID]++
		}
		c.samples(where, t.Samples)
		c.markers(where, t.Markers)
	}
	for pid, n := range mains {
		if n != 1 {
			c.errorf("process %s has %d main threads", pid, n)
		}
	}
}

func (c *checker) samples(where string, t Table) {
	where += ".samples"
	n := c.length(where, t)
	c.index(where, t, "stack", n, c.length("stackTable", c.p.Shared.StackTable), true)
	c.times(where, t, n)
	if string(t["weight"]) != "null" {
		c.column(where, t, "weight", n)
	}
	if _, ok := t["threadCPUDelta"]; ok {
		c.column(where, t, "threadCPUDelta", n)
	}
	if w := string(t["weightType"]); !slices.Contains([]string{`"samples"`, `"tracing-ms"`, `"bytes"`}, w) {
		c.errorf("%s.weightType is %s", where, w)
	}
}

func (c *checker) markers(where string, t Table) {
	where += ".markers"
	n := c.length(where, t)
	texts := len(c.p.Shared.StringArray)
	c.index(where, t, "name", n, texts, false)
	c.index(where, t, "category", n, len(c.p.Meta.Categories), false)
	phases := c.index(where, t, "phase", n, 4, false)
	starts, ends := c.column(where, t, "startTime", n), c.column(where, t, "endTime", n)
	for i := range phases {
		if phases[i] == 1 && ends[i] < starts[i] {
			c.errorf("%s: marker %d ends at %v and begins at %v", where, i, ends[i], starts[i])
		}
	}
	c.present(where, t, n, "data")
	var data []map[string]json.RawMessage
	if err := json.Unmarshal(t["data"], &data); err != nil {
		c.errorf("%s.data: %v", where, err)
		return
	}
	for i, d := range data {
		if d != nil {
			c.payload(fmt.Sprintf("%s.data[%d]", where, i), d, texts)
		}
	}
}

// payload checks the data of a marker against its schema.
func (c *checker) payload(where string, d map[string]json.RawMessage, texts int) {
	var name string
	_ = json.Unmarshal(d["type"], &name) // a missing type has no schema
	i := slices.IndexFunc(c.p.Meta.MarkerSchema, func(s Schema) bool { return s.Name == name })
	if i < 0 {
		c.errorf("%s: no schema for type %q", where, name)
		return
	}
	for _, f := range c.p.Meta.MarkerSchema[i].Fields {
		raw, ok := d[f.Key]
		if !ok || f.Format != "unique-string" {
			continue
		}
		var text int
		if err := json.Unmarshal(raw, &text); err != nil || text < 0 || text >= texts {
			c.errorf("%s.%s is %s of %d strings", where, f.Key, raw, texts)
		}
	}
	if raw, ok := d["cause"]; ok {
		var cause struct{ Stack *int }
		if err := json.Unmarshal(raw, &cause); err != nil || cause.Stack == nil || *cause.Stack < 0 || *cause.Stack >= c.length("stackTable", c.p.Shared.StackTable) {
			c.errorf("%s.cause is %s", where, raw)
		}
	}
}

func (c *checker) counters() {
	for i, k := range c.p.Counters {
		where := fmt.Sprintf("counter %d", i)
		if k.Name == nil || k.Category == nil || k.Description == nil || k.PID == nil {
			c.errorf("%s lacks a name, category, description or pid", where)
			continue
		}
		if !c.heads(k.MainThreadIndex, *k.PID) {
			c.errorf("%s of process %s has the main thread %d", where, *k.PID, k.MainThreadIndex)
		}
		n := c.length(where, k.Samples)
		c.times(where, k.Samples, n)
		c.column(where, k.Samples, "count", n)
		for _, key := range []string{"graphType", "unit", "color", "markerSchemaLocation", "sortWeight", "label", "tooltipRows"} {
			if _, ok := k.Display[key]; !ok {
				c.errorf("%s.display.%s is missing", where, key)
			}
		}
	}
}

// heads reports whether thread i is a main thread of process pid.
func (c *checker) heads(i int, pid string) bool {
	return i >= 0 && i < len(c.p.Threads) && c.p.Threads[i].PID != nil && *c.p.Threads[i].PID == pid
}
