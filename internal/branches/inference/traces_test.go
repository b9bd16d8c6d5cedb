package inference

import (
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/cfg"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// The time to trace a block is proportional to the number of its calls.
func TestTracesOfManyCalls(t *testing.T) {
	testenv.AnyKernel(t)
	testenv.Limited(t, 1<<30, 20*time.Second, func(t *testing.T) {
		const calls = 800_000 // of 5 bytes each, in a function of the largest size
		b := &cfg.Block{Function: &cfg.Function{Start: 0x1000}, Start: 0x1000, End: 0x1000 + 5*calls + 1, Last: instruction.Instruction{Size: 1, Kind: instruction.Return}, LastAddress: 0x1000 + 5*calls}
		for i := range uint64(calls) {
			b.Calls = append(b.Calls, cfg.Call{Address: 0x1000 + 5*i, Next: 0x1000 + 5*i + 5})
		}
		g := &graph{blocks: []*cfg.Block{b}, nodes: []node{{open: true}}, x: []float64{1}, taken: []float64{1}}
		traces := 0
		if err := g.traces(1, func(bolt.Trace) error { traces++; return nil }); err != nil {
			t.Fatal(err)
		}
		if traces == 0 {
			t.Error("no traces")
		}
	})
}

// The calls of a function pointer lead to the counted targets, and return from there.
func TestIndirectCalls(t *testing.T) {
	function := func(start uint64) *cfg.Block {
		return &cfg.Block{
			Function: &cfg.Function{Start: start, End: start + 1}, Start: start, End: start + 1, Instructions: 1,
			Last: instruction.Instruction{Size: 1, Kind: instruction.Return}, LastAddress: start,
		}
	}
	caller := function(0x1000) // it ends with an indirect jump to itself
	caller.Function.End, caller.End, caller.LastAddress = 0x1003, 0x1003, 0x1002
	caller.Last.Kind = instruction.IndirectJump
	caller.Calls = []cfg.Call{{Address: 0x1000, Next: 0x1002}}
	g := &graph{
		blocks: []*cfg.Block{caller, function(0x2000), function(0x3000)},
		nodes:  []node{{open: true}, {open: true}, {open: true}}, taken: []float64{1, 1, 1},
		targets: map[uint64][]edge{},
	}
	g.addTargets(0, 0x1000, map[uint64]uint64{0x2000: 6, 0x3000: 3, 0x4000: 1}) // no block is at 0x4000
	g.addTargets(0, 0x1002, map[uint64]uint64{0x1000: 7})
	g.x = []float64{1000, 600, 300}
	got := map[bolt.Trace]bool{}
	yield := func(trace bolt.Trace) error {
		got[trace] = true
		if trace.From == 0x1002 && trace.To != 0x1000 {
			t.Errorf("got %+v, but the jump leads to itself", trace)
		}
		return nil
	}
	if err := g.traces(1, yield); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bolt.Trace{
		{From: 0x1000, To: 0x2000, End: 0x2000, Count: 600},
		{From: 0x1000, To: 0x3000, End: 0x3000, Count: 300},
		{From: 0x2000, To: 0x1002, End: 0x1002, Count: 600},
		{From: 0x3000, To: 0x1002, End: 0x1002, Count: 300},
		{From: 0, To: 0x1002, End: 0x1002, Count: 100},
		{From: 0x1000, Count: 100},
		{From: 0x1002, To: 0x1000, End: 0x1000, Count: 1000},
	} {
		if !got[want] {
			t.Errorf("no trace %+v in %+v", want, got)
		}
	}
}
