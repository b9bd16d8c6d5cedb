package profile

import (
	"math/rand/v2"
	"testing"
)

// The index finds the nodes that a map finds, however they are distributed.
func TestIndex(t *testing.T) {
	for name, node := range map[string]func(i uint32) Stack{
		"random":      func(uint32) Stack { return Stack{StackID(rand.N(300)), FrameID(rand.N(300))} },
		"deep":        func(i uint32) Stack { return Stack{StackID(i), FrameID(i % 3)} },
		"wide":        func(i uint32) Stack { return Stack{0, FrameID(i)} },
		"high bits":   func(i uint32) Stack { return Stack{StackID(i << 20), FrameID(i << 12)} },
		"alternating": func(i uint32) Stack { return Stack{StackID(i / 2), FrameID(i % 2)} },
	} {
		t.Run(name, func(t *testing.T) {
			table, want := make([]Stack, 1), map[Stack]StackID{}
			x := NewIndex[Stack, StackID](Stack.words)
			for i := range uint32(5000) {
				n := node(i)
				id, known := x.Find(table, n)
				if at, ok := want[n]; ok != known || known && id != at {
					t.Fatalf("node %d, %v: got %d, %t, want %d, %t", i, n, id, known, at, ok)
				}
				id = x.Intern(&table, n)
				if table[id] != n || !known && int(id) != len(table)-1 {
					t.Fatalf("node %d, %v: got row %d of %d, which is %v", i, n, id, len(table), table[id])
				}
				want[n] = id
			}
			if len(table) != len(want)+1 {
				t.Errorf("got %d rows, want a root and %d nodes", len(table), len(want))
			}
		})
	}
}

// The first row of a table can be found, and rows whose words are equal are distinct.
func TestIndexRows(t *testing.T) {
	for name, words := range map[string]func(Stack) (a, b uint64){
		"different words": Stack.words,
		"equal words":     func(Stack) (a, b uint64) { return 0, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			var table []Stack
			x := NewIndex[Stack, StackID](words)
			for i := range StackID(200) {
				row := Stack{Frame: FrameID(i)}
				if id, ok := x.Find(table, row); ok {
					t.Fatalf("found row %d before it was added, at %d", i, id)
				}
				if id := x.Intern(&table, row); id != i {
					t.Fatalf("row %d was added at %d", i, id)
				}
			}
			for i := range StackID(200) {
				if id, ok := x.Find(table, Stack{Frame: FrameID(i)}); !ok || id != i {
					t.Errorf("row %d: got %d, %t", i, id, ok)
				}
			}
		})
	}
}

// A search touches few slots.
func TestIndexIsSparse(t *testing.T) {
	table := make([]Stack, 1)
	x := NewIndex[Stack, StackID](Stack.words)
	for i := range 100_000 {
		x.Add(&table, Stack{StackID(i / 2), FrameID(i % 2)})
		if 4*x.used > 3*len(x.slots) {
			t.Fatalf("got %d of %d slots in use", x.used, len(x.slots))
		}
	}
	if len(x.slots) > 4*len(table) {
		t.Errorf("got %d slots for %d rows", len(x.slots), len(table))
	}
}

func BenchmarkIndex(b *testing.B) {
	table := make([]Stack, 1)
	x := NewIndex[Stack, StackID](Stack.words)
	nodes := make([]Stack, 100_000)
	for i := range nodes {
		nodes[i] = Stack{StackID(rand.N(uint32(i) + 1)), FrameID(rand.N(10_000))}
	}
	for b.Loop() {
		for _, n := range nodes {
			x.Intern(&table, n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(nodes)), "ns/node")
}

func BenchmarkMap(b *testing.B) {
	table := make([]Stack, 1)
	x := map[Stack]StackID{}
	nodes := make([]Stack, 100_000)
	for i := range nodes {
		nodes[i] = Stack{StackID(rand.N(uint32(i) + 1)), FrameID(rand.N(10_000))}
	}
	for b.Loop() {
		for _, n := range nodes {
			Intern(&table, x, n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(nodes)), "ns/node")
}
