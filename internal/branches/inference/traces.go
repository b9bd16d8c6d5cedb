package inference

import (
	"cmp"
	"slices"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/cfg"
	"fulgur/internal/symbols/instruction"
)

// Limits of a trace, beyond which its remaining count is not worth following.
const (
	maxBlocks  = 256
	leastCount = 0.01
)

// tracer converts the flow to traces.
type tracer struct {
	*graph
	scale float64
	yield func(bolt.Trace) error
	err   error
	carry map[uint64]float64 // by the end of a trace: the remainder of rounding
	backs map[*cfg.Function]uint64
}

// traces calls yield with one trace for each branch and each place where the code after it
// may branch again. It assumes that the path after a branch does not depend on the path
// before it.
func (g *graph) traces(seconds float64, yield func(bolt.Trace) error) error {
	t := &tracer{graph: g, scale: seconds, yield: yield, carry: map[uint64]float64{}, backs: g.returns()}
	in := make([]float64, len(g.blocks))
	for _, e := range g.edges {
		in[e.to] += g.x[e.from] * e.share
	}
	for i, b := range g.blocks {
		x := g.x[i]
		if g.nodes[i].open && x > in[i] {
			t.start(0, b.Start, x-in[i])
		}
		for _, c := range b.Calls {
			rest := x
			if callee := g.begin(c.Target); callee >= 0 {
				t.call(c, callee, x)
				rest = 0
			}
			for _, e := range g.targets[c.Address] {
				t.call(c, e.to, x*e.share)
				rest -= x * e.share
			}
			if rest > 0 {
				t.start(c.Address, 0, rest)
				t.start(0, c.Next, rest)
			}
		}
		switch b.Last.Kind {
		case instruction.Return:
			// The calls above start the traces of returns.
		case instruction.IndirectJump:
			for _, e := range g.targets[b.LastAddress] {
				t.start(b.LastAddress, g.blocks[e.to].Start, x*e.share)
			}
		case instruction.Jump, instruction.ConditionalJump, instruction.CounterJump:
			to := b.Last.Target
			if g.begin(to) < 0 {
				to = 0
			}
			t.start(b.LastAddress, to, x*g.taken[i])
		}
	}
	return t.err
}

// call yields the traces of count calls of block callee, and of the returns from its function.
func (t *tracer) call(c cfg.Call, callee int, count float64) {
	t.start(c.Address, t.blocks[callee].Start, count)
	t.start(t.backs[t.blocks[callee].Function], c.Next, count)
}

// returns finds the most executed return instruction of each function.
func (g *graph) returns() map[*cfg.Function]uint64 {
	most, at := map[*cfg.Function]float64{}, map[*cfg.Function]uint64{}
	for i, b := range g.blocks {
		if b.Last.Kind == instruction.Return && g.x[i] >= most[b.Function] {
			most[b.Function], at[b.Function] = g.x[i], b.LastAddress
		}
	}
	return at
}

// start yields the traces that begin with the branch between two addresses.
func (t *tracer) start(from, to uint64, count float64) {
	if to == 0 {
		t.emit(from, 0, 0, count)
		return
	}
	at := to
	for range maxBlocks {
		i := cfg.Find(t.blocks, at)
		if i < 0 || count*t.scale < leastCount {
			return
		}
		b := t.blocks[i]
		if next, _ := slices.BinarySearchFunc(b.Calls, at, func(c cfg.Call, at uint64) int { return cmp.Compare(c.Address, at) }); next < len(b.Calls) {
			t.emit(from, to, b.Calls[next].Address, count)
			return
		}
		next := b.LastAddress + uint64(b.Last.Size)
		switch b.Last.Kind {
		case instruction.ConditionalJump, instruction.CounterJump:
			taken := t.taken[i]
			if t.begin(next) < 0 {
				taken = 1
			}
			if taken > 0 {
				t.emit(from, to, b.LastAddress, count*taken)
			}
			count *= 1 - taken
		case instruction.Jump, instruction.IndirectJump, instruction.Return:
			t.emit(from, to, b.LastAddress, count)
			return
		case instruction.Stop:
			t.emit(from, to, 0, count)
			return
		}
		at = next
	}
}

// emit yields a trace. It rounds the count such that the sum of the traces with the same end
// is right.
func (t *tracer) emit(from, to, end uint64, count float64) {
	key := end
	if end == 0 {
		key = from
	}
	exact := count*t.scale + t.carry[key]
	n := uint64(exact)
	t.carry[key] = exact - float64(n)
	if n > 0 && t.err == nil && (from != 0 || to != 0) {
		t.err = t.yield(bolt.Trace{From: from, To: to, End: end, Count: n})
	}
}
