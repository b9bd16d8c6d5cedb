package profile

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

var counted = []ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}

// total checks the sum of the values of p, and the numbers of samples whose stacks are
// too deep or too many.
func total(t *testing.T, p *Profile, want int64, deep, many uint64) {
	t.Helper()
	if got := p.Total(0); got != want {
		t.Errorf("got total %d, want %d", got, want)
	}
	if p.Losses[LossTooDeep] != deep || p.Losses[LossTooMany] != many {
		t.Errorf("got %d samples too deep and %d too many, want %d and %d", p.Losses[LossTooDeep], p.Losses[LossTooMany], deep, many)
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
			t.Errorf("%d frames: got IsCut %v, want %v", depth, b.IsCut(s), depth > MaxDepth)
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
			t.Errorf("%d frames: got %d, want %d", depth, len(frames), wantDepth)
		}
		if name := p.FrameName(frames[0]); (name == Truncated) != (depth > MaxDepth) {
			t.Errorf("%d frames: got innermost %s, want the marker if they are cut", depth, name)
		}
		// A stack that was cut is not cut again.
		d := Diff([]*Profile{p.Only(0)}, []*Profile{p.Only(0)}, 1)
		if d.Total(1) != 3 || d.Losses[LossTooDeep] != deep {
			t.Errorf("comparison with itself: got total %d, losses %+v; want 3, %d too deep", d.Total(1), d.Losses, deep)
		}
	}
}

// When tables are full, totals stay correct for all samples, and memory does not grow.
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
			t.Errorf("limit %d: got second value %d, want %d", room, p.Total(1), 100*samples)
		}
		rows := len(p.Mappings) + len(p.Functions) + len(p.Frames) + len(p.Stacks) + len(p.Tasks) + len(p.Samples)
		if limit := int(room)/sizeStack + 20; rows > limit {
			t.Errorf("limit %d: got %d rows, want at most %d", room, rows, limit)
		}
		if p.Losses[LossTooMany] == 0 || p.Losses[LossTooMany] > samples {
			t.Errorf("limit %d: got %d samples too many, want 1 to all", room, p.Losses[LossTooMany])
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
		t.Errorf("name of %d bytes: got %d, want it cut to at most %d", len(long), len(p[id].Name), MaxName)
	}
	if name := b.p.Tasks[task].Comm; len(name) > MaxName {
		t.Errorf("got %d bytes of a task's name, want at most %d", len(name), MaxName)
	}
	if l := b.Profile(Meta{}, Losses{}).Losses; l[LossLongNames] != 2 {
		t.Errorf("got %d cut names, want 2", l[LossLongNames])
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
		t.Error("got no error")
	}
	c = NewCollector(counted...)
	for i := range 1000 {
		c.Count(Sample{Task: c.Task(Task{PID: i})}, 0, 1)
	}
	c.left.bytes = 7999
	if c.Value(ValueType{Type: "of each"}); c.Err() == nil {
		t.Error("got no error for a full table")
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
			t.Errorf("%s: got no error", name)
		}
	}
}
