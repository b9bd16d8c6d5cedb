package stacks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/profile"
)

// labelRecord returns a record of labels.
func labelRecord(id uint64, list ...[2]string) []byte {
	r := bpf.LabelRecord{Type: uint32(bpf.RecordLabels), Id: id, Count: uint32(len(list))}
	for i, l := range list {
		copy(r.Labels[i].Key[:], l[0])
		copy(r.Labels[i].Value[:], l[1])
		r.Labels[i].KeySize, r.Labels[i].ValueSize = uint16(len(l[0])), uint16(len(l[1]))
	}
	size := unsafe.Offsetof(r.Labels) + uintptr(len(list))*unsafe.Sizeof(r.Labels[0])
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))[:size])
}

func TestLabels(t *testing.T) {
	s := NewStore(nil)
	if err := s.AddLabels(labelRecord(7, [2]string{"user", "u1"}, [2]string{"kind", "x"})); err != nil {
		t.Fatal(err)
	}
	set := s.labels.find(7)
	if got, want := set.List(), (profile.Labels{{Key: "kind", Value: "x"}, {Key: "user", Value: "u1"}}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// contextRecord returns a record of a thread's context.
func contextRecord(id uint64, trace, span byte, attributes ...byte) []byte {
	c := bpf.ThreadContext{Size: uint16(len(attributes))}
	c.TraceId[15], c.SpanId[0] = trace, span
	copy(c.Attributes[:], attributes)
	context := unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Offsetof(c.Attributes)+uintptr(len(attributes)))
	r := bpf.LabelRecord{Type: uint32(bpf.RecordLabels), Id: id, Pid: 5, Epoch: 6, Context: uint32(len(context))}
	return append(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Offsetof(r.Labels))), context...)
}

// The context of a thread has IDs, and attributes whose keys the process publishes.
func TestThreadContext(t *testing.T) {
	const trace, span = "00000000000000000000000000000012", "3400000000000000"
	ids := profile.Labels{{Key: "span_id", Value: span}, {Key: "trace_id", Value: trace}}
	for name, test := range map[string]struct {
		record []byte
		want   profile.Labels
	}{
		"IDs":                  {contextRecord(7, 0x12, 0x34), ids},
		"attributes":           {contextRecord(7, 0, 0, 1, 2, 'o', 'k', 0, 0), profile.Labels{{Key: "empty"}, {Key: "route", Value: "ok"}}},
		"the last value":       {contextRecord(7, 0, 0, 1, 1, 'a', 1, 1, 'b'), profile.Labels{{Key: "route", Value: "b"}}},
		"an incomplete value":  {contextRecord(7, 0, 0, 1, 1, 'a', 1, 2, 'b'), profile.Labels{{Key: "route", Value: "a"}}},
		"unknown keys":         {contextRecord(7, 0x12, 0x34, 9, 1, 'a', 2, 1, 'a'), ids},
		"a key like an ID's":   {contextRecord(7, 0x12, 0x34, 3, 1, 'a'), ids},
		"text that is no text": {contextRecord(7, 0, 0, 1, 1, 0xff), profile.Labels{{Key: "route", Value: "\uFFFD"}}},
	} {
		s := NewStore(nil)
		s.Keys = func(pid int, epoch uint64, _ int) []string {
			if pid != 5 || epoch != 6 {
				t.Errorf("asked for process %d, epoch %d", pid, epoch)
			}
			return []string{"empty", "route", "", "trace_id"}
		}
		if err := s.AddLabels(test.record); err != nil {
			t.Fatal(err)
		}
		if got := s.labels.find(7).List(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	forged := contextRecord(7, 0, 0)
	binary.NativeEndian.PutUint32(forged[unsafe.Offsetof(bpf.LabelRecord{}.Context):], 1<<31)
	if err := NewStore(nil).AddLabels(forged); !errors.Is(err, ringbuf.ErrRecord) {
		t.Errorf("a record that is too short: got error %v", err)
	}
}

// A set whose keys the process publishes later has them, also in stacks that arrived before. A key
// that is never published is not looked for all the time.
func TestThreadContextKeys(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	now := time.Unix(0, 0)
	s.now = func() time.Time { return now }
	keys, asked := []string{"method"}, 0
	s.Keys = func(int, uint64, int) []string { asked++; return keys }
	for id, record := range [][]byte{contextRecord(7, 0, 0, 1, 1, 'a'), contextRecord(8, 0, 0, 1, 1, 'b'), contextRecord(9, 0, 0, 9, 1, 'c')} {
		if err := s.AddLabels(record); err != nil {
			t.Fatal(err)
		}
		add(t, s, labeledRecord(uint64(id+1), uint64(id+7)))
	}
	keys = append(keys, "route")
	s.FinishLabels()
	if asked != 3 {
		t.Errorf("asked %d times at once, want 3", asked)
	}
	now = now.Add(retryTime)
	s.FinishLabels()
	for id, want := range map[uint64]profile.Labels{1: {{Key: "route", Value: "a"}}, 2: {{Key: "route", Value: "b"}}, 3: nil} {
		if trace, ok := s.Trace(id); !ok || trace.Unlabeled || !slices.Equal(trace.Labels.List(), want) {
			t.Errorf("stack %d: got labels %v, want %v", id, trace.Labels.List(), want)
		}
	}
	for asked = 0; now.Before(time.Unix(60, 0)); now = now.Add(retryTime / 10) {
		s.FinishLabels()
	}
	if asked != maxRetries-1 {
		t.Errorf("asked again %d times, want %d", asked, maxRetries-1)
	}
	for i := range 2 * maxUnfinished {
		if err := s.AddLabels(contextRecord(uint64(100+i), byte(i), byte(i>>8), 9, 1, 'c')); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.labels.unfinished); n != maxUnfinished {
		t.Errorf("got %d sets to finish, want %d", n, maxUnfinished)
	}
}

// Equal sets share memory, and programs that make new sets all the time fill a bounded amount of it.
func TestLabelsBounded(t *testing.T) {
	s := NewStore(nil)
	long := strings.Repeat("x", 100)
	const sets = 200_000
	for i := range sets {
		if err := s.AddLabels(labelRecord(uint64(1+i), [2]string{long[:50], fmt.Sprintf("%s%d", long, i)})); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.labels.known); n == sets || n < 1<<15 {
		t.Errorf("got %d of %d sets, want fewer than all, and enough for a process", n, sets)
	}
	if s.labels.bytes > maxLabelBytes {
		t.Errorf("got %d bytes, want at most %d", s.labels.bytes, maxLabelBytes)
	}
	if set := s.labels.find(sets); set != nil {
		t.Errorf("got the last set, %v", set.List())
	}
	if err := s.AddLabels(labelRecord(sets+1, [2]string{long[:50], long + "0"})); err != nil {
		t.Fatal(err)
	}
	if s.labels.find(sets+1) != s.labels.find(1) {
		t.Error("equal sets do not share memory")
	}
}

// labeledRecord returns a stack record of code with a set of labels.
func labeledRecord(id, labels uint64) []byte {
	r := record(id, nil, []uint64{0x100, 0x200})
	binary.NativeEndian.PutUint64(r[unsafe.Offsetof(bpf.StackRecord{}.Labels):], labels)
	return r
}

// The kernel side sends a set once. Stacks of later stores have it, too, as long as it is used.
func TestLabelsNext(t *testing.T) {
	want := profile.Labels{{Key: "kind", Value: "x"}}
	s := NewStore(fixed{&process.File{}})
	if err := s.AddLabels(labelRecord(7, [2]string{"kind", "x"})); err != nil {
		t.Fatal(err)
	}
	const stores = 3
	for id := range uint64(stores) {
		add(t, s, labeledRecord(id+1, 7))
		trace, ok := s.Trace(id + 1)
		if got := trace.Labels.List(); !ok || !slices.Equal(got, want) {
			t.Fatalf("store %d: got labels %v, want %v", id, got, want)
		}
		s = s.Next()
	}
	// A stack that was sent to the store before keeps its labels.
	if trace, ok := s.Trace(stores); !ok || !slices.Equal(trace.Labels.List(), want) {
		t.Errorf("got labels %v of a stack of the store before, want %v", trace.Labels.List(), want)
	}
	// A stack whose set had no room lost it, in each store.
	for range stores {
		add(t, s, labeledRecord(99, 9))
		if trace, ok := s.Trace(99); !ok || trace.Labels != nil || !trace.Unlabeled {
			t.Fatalf("got trace %+v of a stack whose labels had no room", trace)
		}
		s = s.Next()
	}
	if s.Next().Next().labels.find(7) != nil {
		t.Error("a set that no stack used is kept")
	}
}
