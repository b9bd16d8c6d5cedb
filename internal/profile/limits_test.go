package profile

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

var counted = []ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}

// total fails the test if values of p do not add up to want, and n samples have a
// stack of the marker alone or with it.
func total(t *testing.T, p *Profile, want int64, deep, many uint64) {
	t.Helper()
	if got := p.Total(0); got != want {
		t.Errorf("samples add up to %d, want %d", got, want)
	}
	if p.Losses[LossTooDeep] != deep || p.Losses[LossTooMany] != many {
		t.Errorf("%d samples are too deep and %d too many, want %d and %d", p.Losses[LossTooDeep], p.Losses[LossTooMany], deep, many)
	}
}

func frameNamed(b *Builder, name string) FrameID {
	return b.Frame(Frame{Function: b.Function(Function{Name: name, SystemName: name})})
}

// pushed returns a stack of n frames.
func pushed(b *Builder, f FrameID, n int) (s StackID) {
	for range n {
		s = b.Push(s, f)
	}
	return s
}

func TestMaxDepth(t *testing.T) {
	for depth, wantDepth := range map[int]int{MaxDepth: MaxDepth, MaxDepth + 1: MaxDepth, 5 * MaxDepth: MaxDepth} {
		b := NewBuilder(counted...)
		s := pushed(b, frameNamed(b, "f"), depth)
		if b.IsCut(s) != (depth > MaxDepth) {
			t.Errorf("%d frames: cut is %v", depth, b.IsCut(s))
		}
		b.Add(Sample{Stack: s, Task: b.Task(Task{}), Values: []int64{3, 7}})
		p := b.Profile(Meta{}, Losses{})
		deep := uint64(0)
		if depth > MaxDepth {
			deep = 3
		}
		total(t, p, 3, deep, 0)
		frames := p.AppendFrames(nil, p.Samples[0].Stack)
		if len(frames) != wantDepth {
			t.Errorf("%d frames are %d", depth, len(frames))
		}
		if name := p.FrameName(frames[0]); (name == Truncated) != (depth > MaxDepth) {
			t.Errorf("the innermost of %d frames is %s", depth, name)
		}
		// What was cut is not cut again.
		d := Diff(p.Only(0), p.Only(0), false)
		if d.Total(1) != 3 || d.Losses[LossTooDeep] != deep {
			t.Errorf("compared with itself: %d, %+v", d.Total(1), d.Losses)
		}
	}
}

// Of tables without room, totals stay whole whatever is added, and memory does not
// grow.
func TestMaxTables(t *testing.T) {
	for _, room := range []int64{0, 1000, 5000, 20_000, 100_000} {
		c := NewCollector(counted...)
		c.left.bytes = room
		const samples = 10_000
		for i := range samples {
			name := fmt.Sprint("name", i)
			f := c.Frame(Frame{
				Function: c.Function(Function{Name: name, SystemName: name}), Mapping: c.Mapping(Mapping{Path: name}), Address: uint64(i),
			})
			at := Sample{Stack: c.Push(c.Push(0, f), f), Task: c.Task(Task{PID: i, Comm: name}), CPU: i % 3}
			c.Count(at, 0, 1)
			c.Count(at, 1, 100)
		}
		p := c.Profile(Meta{}, Losses{})
		if p.Total(1) != 100*samples {
			t.Errorf("room of %d: the second value is %d", room, p.Total(1))
		}
		rows := len(p.Mappings) + len(p.Functions) + len(p.Frames) + len(p.Stacks) + len(p.Tasks) + len(p.Samples)
		if most := int(room)/sizeStack + 20; rows > most {
			t.Errorf("room of %d: %d rows", room, rows)
		}
		if p.Losses[LossTooMany] == 0 || p.Losses[LossTooMany] > samples {
			t.Errorf("room of %d: %d samples are counted as too many", room, p.Losses[LossTooMany])
		}
		total(t, p, samples, 0, p.Losses[LossTooMany])
	}
}

func TestMaxFrames(t *testing.T) {
	b := NewBuilder(counted...)
	b.left.frames = 100
	f := frameNamed(b, "f")
	for i := range 20 {
		b.Add(Sample{Stack: pushed(b, f, 10), Task: b.Task(Task{PID: i}), Values: []int64{2, 0}})
	}
	total(t, b.Profile(Meta{}, Losses{}), 40, 0, 20)
}

func TestMaxName(t *testing.T) {
	b := NewBuilder(counted...)
	long := strings.Repeat("ä", MaxName)
	id := b.Function(Function{Name: long, SystemName: "short"})
	task := b.Task(Task{Comm: long[1:]})
	if p := b.p.Functions; len(p[id].Name) > MaxName || !utf8.ValidString(p[id].Name) || !strings.HasSuffix(p[id].Name, "ä…") || p[id].SystemName != "short" {
		t.Errorf("a name of %d bytes becomes one of %d", len(long), len(p[id].Name))
	}
	if name := b.p.Tasks[task].Comm; len(name) > MaxName {
		t.Errorf("a task's name has %d bytes", len(name))
	}
	if l := b.Profile(Meta{}, Losses{}).Losses; l[LossLongNames] != 2 {
		t.Errorf("%d names were cut, want 2", l[LossLongNames])
	}
}

func TestMaxValues(t *testing.T) {
	c := NewCollector()
	for i := range MaxValues {
		c.Value(ValueType{Type: fmt.Sprint(i)})
	}
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	c.Count(Sample{Task: c.Task(Task{})}, c.Value(ValueType{Type: "one more"}), 1)
	if c.Err() == nil {
		t.Error("no error")
	}
	c = NewCollector(counted...)
	for i := range 1000 {
		c.Count(Sample{Task: c.Task(Task{PID: i})}, 0, 1)
	}
	c.left.bytes = 7999
	if c.Value(ValueType{Type: "of each"}); c.Err() == nil {
		t.Error("no error, though there is no room")
	}
}

func TestSums(t *testing.T) {
	for name, values := range map[string][]int64{
		"too large": {math.MaxInt64, 1}, "of both signs": {math.MaxInt64, math.MinInt64 + 1}, "the least": {math.MinInt64},
	} {
		c := NewCollector(counted...)
		for _, n := range values {
			c.Count(Sample{Task: c.Task(Task{})}, 1, n)
		}
		if c.Err() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
