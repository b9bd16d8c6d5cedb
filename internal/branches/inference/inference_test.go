package inference

import (
	"math"
	"testing"

	"fulgur/internal/branches/cfg"
	"fulgur/internal/symbols/instruction"
)

// A jump without hits measures nothing, and a jump with hits counts beside the samples.
func TestMeasure(t *testing.T) {
	const hit, unhit, uncounted = 0, 1, 2
	g := &graph{nodes: make([]node, 3)}
	for i := range g.nodes {
		g.blocks = append(g.blocks, &cfg.Block{LastAddress: uint64(i), Instructions: 2, Last: instruction.Instruction{Kind: instruction.ConditionalJump}})
	}
	g.measure(Evidence{Jumps: map[uint64]Jump{
		hit:   {Rate: 1000, Counted: 2, Error: 0.12, Hits: 2000},
		unhit: {Counted: 2, Error: 0},
	}}, []float64{hit: 10, unhit: 20, uncounted: 30})
	// 10 samples of 2 instructions are 1000 executions, so that 1 sample of 1 is 200.
	samples := func(count float64) measurement {
		return measurement{count: count, relative: sampleSlack, one: 100}
	}
	for i, want := range [][]measurement{
		hit:       {samples(1000), {count: 1000, relative: math.Hypot(0.12, countSlack), one: 0.5}},
		unhit:     {samples(2000)},
		uncounted: {samples(3000)},
	} {
		got := g.nodes[i].measured
		if len(got) != len(want) {
			t.Errorf("block %d: got %+v, want %+v", i, got, want)
			continue
		}
		for j := range want {
			if got[j] != want[j] {
				t.Errorf("block %d: got %+v, want %+v", i, got, want)
			}
		}
	}
}

// Jumps counted by breakpoints have no rate. Then the samples and a typical speed give the scale.
func TestMeasureWithoutRates(t *testing.T) {
	g := &graph{nodes: make([]node, 1)}
	g.blocks = append(g.blocks, &cfg.Block{Instructions: 4, Last: instruction.Instruction{Kind: instruction.ConditionalJump}})
	g.measure(Evidence{Jumps: map[uint64]Jump{0: {Hits: 1000}}, Seconds: 10, SampleSeconds: 0.002}, []float64{100})
	// 100 samples are 0.2 s of CPU time, or 2e8 instructions in 10 s.
	got := g.nodes[0].measured
	if len(got) != 1 || math.Abs(got[0].count-2e8/4/10) > 1 || got[0].relative != sampleSlack {
		t.Errorf("got %+v, want 5 million executions per second by samples", got)
	}
}

// The share of branches that cannot be counted is by their executions: calls and the last instructions of
// blocks, unless these only continue.
func TestShare(t *testing.T) {
	const jump, indirect, call, ret = 1, 2, 3, 4
	g := &graph{x: []float64{10, 5, 85, 1000}, blocks: []*cfg.Block{
		{LastAddress: jump, Last: instruction.Instruction{Kind: instruction.ConditionalJump}},
		{LastAddress: indirect, Last: instruction.Instruction{Kind: instruction.IndirectJump}},
		{LastAddress: ret, Last: instruction.Instruction{Kind: instruction.Return}, Calls: []cfg.Call{{Address: call}}},
		{LastAddress: 5},
	}}
	const all = 10 + 5 + 2*85
	for name, test := range map[string]struct {
		of   []uint64
		want float64
	}{
		"none": {nil, 0}, "a jump": {[]uint64{indirect}, 5. / all}, "a call": {[]uint64{indirect, call}, 90. / all},
		"all": {[]uint64{jump, indirect, call, ret}, 1}, "no branch": {[]uint64{5}, 0},
	} {
		of := map[uint64]bool{}
		for _, addr := range test.of {
			of[addr] = true
		}
		if got := g.share(of); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	if got := (&graph{}).share(nil); got != 0 {
		t.Errorf("got %v of no branches, want 0", got)
	}
}
