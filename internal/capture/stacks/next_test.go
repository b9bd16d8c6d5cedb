package stacks

import (
	"reflect"
	"testing"

	"fulgur/internal/process"
)

// described returns a trace, its frames and their code, without the store's IDs.
func described(s *Store, id TraceID) (Trace, []Frame, []Code) {
	trace := s.Traces[id]
	var frames []Frame
	var codes []Code
	for n := trace.Leaf; n != 0; n = s.Nodes[n].Parent {
		f := s.Frames[s.Nodes[n].Frame]
		codes = append(codes, s.Codes[f.Code])
		f.Code = 0
		frames = append(frames, f)
	}
	trace.Leaf = 0
	return trace, frames, codes
}

func add(t *testing.T, s *Store, records ...[]byte) {
	t.Helper()
	for _, r := range records {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
}

// A store can count stacks whose names arrived in the previous store, but takes nothing
// else from it, and nothing from older stores.
func TestNext(t *testing.T) {
	first := NewStore(fixed{&process.File{}})
	add(t, first,
		record(1, []uint64{0xffff1, 0xffff2}, []uint64{0x100, 0x200, 0x99999}),
		record(2, nil, []uint64{0x300, 0x400}))
	second := first.Next()
	if len(second.Traces) != 0 {
		t.Fatalf("got traces %v at the start, want none", second.Traces)
	}
	add(t, second, record(3, nil, []uint64{0x500}))
	counts := map[Key]Values{{ID: 1}: {5}, {ID: 3}: {7}, {ID: 4}: {9}}
	second.Count(counts)
	if len(counts) != 1 || len(second.Samples) != 2 || len(second.Traces) != 2 {
		t.Errorf("got %v left, samples %v of traces %v; want 1, 2, 2", counts, second.Samples, second.Traces)
	}
	was, wasFrames, wasCodes := described(first, first.ids[1])
	is, isFrames, isCodes := described(second, second.ids[1])
	if was != is || !reflect.DeepEqual(wasFrames, isFrames) || !reflect.DeepEqual(wasCodes, isCodes) {
		t.Errorf("got trace %+v %v %v, want %+v %v %v", is, isFrames, isCodes, was, wasFrames, wasCodes)
	}
	if third := second.Next(); second.previous != nil {
		t.Error("the second store keeps the first")
	} else if _, ok := third.Trace(2); ok {
		t.Error("the third store has a trace of the first")
	}
}

// Next keeps the traces of stacks that are pending, for as long as they are, even if no
// sample counts in them.
func TestNextKeepsPending(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	add(t, s, record(1, nil, []uint64{0x100, 0x200}), record(2, nil, []uint64{0x300}))
	for range 5 {
		s = s.Next(1, 99) // 99 has not arrived
	}
	s = s.Next()
	if _, ok := s.Trace(1); !ok {
		t.Error("got no trace of the pending stack")
	}
	if _, ok := s.Trace(2); ok || s.Names() != 1 {
		t.Errorf("got %d names, want 1", s.Names())
	}
}

// The stores of successive windows do not grow.
func TestNextIsBounded(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	for window := range uint64(50) {
		for i := range uint64(20) {
			add(t, s, record(1+window*20+i, nil, []uint64{0x100 + window*40 + i, 0x10}))
		}
		if _, ok := s.Trace(1 + window*20 - 1); window > 0 && !ok {
			t.Fatal("got no trace for the last name of the previous window")
		}
		if len(s.Traces) > 21 || len(s.Nodes) > 24 || s.Names() > 21 {
			t.Fatalf("window %d has %d traces, %d nodes and %d names", window, len(s.Traces), len(s.Nodes), len(s.ids))
		}
		s = s.Next()
	}
}

// Without room for nodes, CopyTrace cuts a stack to its root.
func TestAdoptWithoutRoom(t *testing.T) {
	from := NewStore(fixed{&process.File{}})
	add(t, from, record(1, nil, []uint64{0x100, 0x200, 0x300}))
	to := NewStore(nil)
	to.MaxNodes = len(to.Nodes) + 2
	trace := to.Traces[to.CopyTrace(from, from.ids[1])]
	_, frames, _ := described(to, 0)
	if !trace.Cut || len(frames) != 2 || frames[1].Address != 0x300 {
		t.Errorf("got %+v with frames %+v, want it cut to the two at its root", trace, frames)
	}
}

// What is known of code goes with it to another store.
func TestAdoptCode(t *testing.T) {
	from, to := NewStore(nil), NewStore(nil)
	code := from.code(Code{Kind: CodeJIT, PID: 5}, Range{})
	from.Languages[code], from.Omitting[code] = "Mono", true
	id := from.trace(Trace{PID: 5, Leaf: from.push(0, Frame{Address: 0x300, Code: code})})
	trace := to.Traces[to.CopyTrace(from, id)]
	copied := to.Frames[to.Nodes[trace.Leaf].Frame].Code
	if to.Languages[copied] != "Mono" || !to.Omitting[copied] {
		t.Errorf("got language %q, omitting: %v", to.Languages[copied], to.Omitting[copied])
	}
}
