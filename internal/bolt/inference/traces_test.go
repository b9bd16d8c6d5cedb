package inference

import (
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/bolt/cfg"
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
		g := &graph{blocks: []*cfg.Block{b}, nodes: []node{{open: true}}, out: make([][]int, 1), x: []float64{1}, taken: []float64{1}}
		traces := 0
		if err := g.traces(1, func(bolt.Trace) error { traces++; return nil }); err != nil {
			t.Fatal(err)
		}
		if traces == 0 {
			t.Error("no traces")
		}
	})
}
