package profile

import (
	"strings"
	"testing"
	"time"

	"fulgur/internal/unwind/stackend"
)

func TestString(t *testing.T) {
	b := NewBuilder(ValueType{"samples", "count"}, ValueType{"cpu", "nanoseconds"})
	frame := func(name string) FrameID {
		return b.Frame(Frame{Function: b.Function(Function{Name: name, SystemName: name})})
	}
	s := b.Push(b.Push(0, frame("main")), frame("bad\x1b[31m\nname"))
	s = b.Push(s, b.Frame(Frame{Mapping: b.Mapping(Mapping{Path: "/usr/lib/libc.so.6"}), Address: 0x1234}))
	labels := b.Labels(Labels{{Key: "user", Value: "7"}})
	b.Add(Sample{Stack: s, Task: b.Task(Task{PID: 12, TID: 13, Comm: "server", Labels: labels}), CPU: 3, End: stackend.Complete, Values: []int64{2, 20}})
	b.Add(Sample{Task: b.Task(Task{PID: 1, Comm: "idle"}), CPU: -1, Values: []int64{1, -10}})
	p := b.Profile(Meta{Command: "fulgur profile", Event: "cpu-clock", Frequency: 99, Start: time.Unix(1, 5), Duration: time.Second}, Losses{LossUnread: 4})
	const want = `values: samples/count cpu/nanoseconds (shown first)
run: fulgur profile, event cpu-clock, 99 Hz, from 1970-01-01T00:00:01.000000005Z, 1s
tables: 2 mappings, 3 functions, 4 frames, 4 stacks, 2 tasks, 1 owners, 2 sets of labels
lost: 4 unread
samples: 2
  [2 20] server 12/13 user=7 CPU 3 (complete): main;bad\x1b[31m\nname;[libc.so.6+0x1234]
  [1 -10] idle 1/0 (no user stack):`
	if got := strings.ReplaceAll(p.String(), ": \n", ":\n"); got != want+"\n" {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (*Profile)(nil).String(); got != "no profile" {
		t.Errorf("got %q for none", got)
	}
}

// The text is short and stable, and never fails, whatever the profile contains.
func TestStringIsBounded(t *testing.T) {
	long := strings.Repeat("x\n", 1<<16)
	p := &Profile{Meta: Meta{Command: long, Event: long}, Functions: []Function{{Name: long}, {Name: long}}, Mappings: make([]Mapping, 1), Losses: Losses{LossSamples: 1}}
	for i := range FrameID(1000) {
		p.Frames = append(p.Frames, Frame{Function: 1})
		p.Stacks = append(p.Stacks, Stack{Parent: StackID(i) - 1, Frame: i})
	}
	p.Stacks[1].Parent = 999 // a circle
	p.Frames[990] = Frame{Function: 7}
	p.Frames[991] = Frame{Mapping: 7}
	p.Stacks[992] = Stack{Parent: 1 << 20, Frame: 1 << 20}
	labels := make(Labels, 1000)
	p.Labels = []Labels{nil, labels}
	p.Tasks = []Task{{Comm: long, Labels: 1}}
	for i := range 1000 {
		p.ValueTypes = append(p.ValueTypes, ValueType{long, long})
		p.Samples = append(p.Samples, Sample{Stack: StackID(999 - i%20), Task: TaskID(i % 2), Values: make([]int64, 1000)})
	}
	p.Samples[3].Stack = 1 << 30
	got := p.String()
	if len(got) > 64<<10 || strings.Count(got, "\n") > 40 {
		t.Errorf("got %d bytes and %d lines", len(got), strings.Count(got, "\n"))
	}
	if got != p.String() {
		t.Error("got another text at the second time")
	}
	for _, want := range []string{"and 980 more", "stack 1073741824?", "function 7 and mapping 0?", "mapping 7?", "frame 1048576?", "stack 1048576?", "task 1?", ";"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
}
