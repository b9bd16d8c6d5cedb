package stacks

import (
	"slices"
	"testing"

	"fulgur/internal/process"
)

// User and kernel halves with separate IDs count as one stack once both have arrived. The
// same is true of a waker's stack.
func TestJointHalves(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	for _, r := range [][]byte{record(1, nil, []uint64{10, 20}), record(2, []uint64{100, 200}, nil), record(3, []uint64{100, 200}, []uint64{10, 20})} {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	counts := map[Key]Values{
		{ID: 1, Kernel: 2, Waker: 3}:  {1, 10, 20, 30},
		{ID: 1, Kernel: 2, Detail: 7}: {2},
		{ID: 1, Kernel: 9}:            {4},
		{ID: 9, Kernel: 2}:            {8},
		{ID: 1, Kernel: 2, Waker: 9}:  {16},
	}
	s.Count(counts)
	if len(counts) != 3 {
		t.Errorf("got %v left, want the counts of stack 9", counts)
	}
	if len(s.Samples) != 2 {
		t.Fatalf("got samples %v, want 2", s.Samples)
	}
	frames := func(leaf NodeID) (addresses []uint64) {
		for ; leaf != 0; leaf = s.Nodes[leaf].Parent {
			addresses = append(addresses, s.Frames[s.Nodes[leaf].Frame].Address)
		}
		return addresses
	}
	whole, _ := s.Trace(3)
	for sample := range s.Samples {
		if got, want := frames(s.Traces[sample.Trace].Leaf), frames(whole.Leaf); !slices.Equal(got, want) {
			t.Errorf("got joint stack %v, want %v", got, want)
		}
		if (sample.Waker == 0) == (sample.Detail == 0) {
			t.Errorf("got sample %+v, want either a waker or a detail", sample)
		}
	}
}
