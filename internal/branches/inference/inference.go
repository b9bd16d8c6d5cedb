package inference

import (
	"math"
	"slices"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/cfg"
	"fulgur/internal/symbols/instruction"
)

// Evidence is a measurement of a binary. Addresses are link-time addresses.
type Evidence struct {
	// Jumps holds the counted conditional and indirect jumps, by address.
	Jumps map[uint64]Jump
	// Targets counts the targets of each indirect jump or call, by its address.
	Targets map[uint64]map[uint64]uint64
	// Samples counts samples by the address of the instruction.
	Samples map[uint64]uint64
	// Seconds is the duration that the profile describes. It converts rates to counts.
	Seconds float64
	// Uncountable holds the addresses of the jumps and indirect calls that nothing can count.
	Uncountable map[uint64]bool
	// SampleSeconds is the CPU time between two samples. It converts samples to rates if no
	// rate was measured.
	SampleSeconds float64
}

// Jump holds the counts of a jump.
type Jump struct {
	// Rate is the number of executions per second, and Counted the time for which the jump
	// was counted, in seconds. Counted is 0 if the rate is unknown.
	Rate, Counted float64
	// Error is the standard error of Rate relative to Rate.
	Error float64
	// Hits is the number of observed executions, and Taken the number of these that jumped.
	Hits, Taken uint64
}

// graph is the control flow of a program.
type graph struct {
	blocks []*cfg.Block
	nodes  []node
	edges  []edge
	x      []float64
	taken  []float64 // by block: the share of its executions that jump
	// targets holds the edges of indirect jumps and calls, by their address.
	targets map[uint64][]edge
}

// Traces estimates how often each reached block of p was executed, and calls yield with the
// traces of its branches. It returns the share of the executed branches that nothing can count, from 0 to
// 1, whether they jumped or not.
func Traces(p *cfg.Program, e Evidence, yield func(bolt.Trace) error) (uncountable float64, err error) {
	g := build(p, e)
	g.x = solve(g.nodes, g.edges)
	return g.share(e.Uncountable), g.traces(e.Seconds, yield)
}

// share returns the share of the executed branches that are at the given addresses.
func (g *graph) share(of map[uint64]bool) float64 {
	var some, all float64
	add := func(addr uint64, count float64) {
		all += count
		if of[addr] {
			some += count
		}
	}
	for i, b := range g.blocks {
		for _, c := range b.Calls {
			add(c.Address, g.x[i])
		}
		switch b.Last.Kind {
		case instruction.ConditionalJump, instruction.CounterJump, instruction.Jump, instruction.IndirectJump, instruction.Return:
			add(b.LastAddress, g.x[i])
		}
	}
	if all == 0 {
		return 0
	}
	return some / all
}

// build makes the graph.
func build(p *cfg.Program, e Evidence) *graph {
	var entries []uint64
	for _, to := range e.Targets {
		for addr := range to {
			entries = append(entries, addr)
		}
	}
	g := &graph{blocks: p.Blocks(entries), targets: map[uint64][]edge{}}
	g.nodes, g.taken = make([]node, len(g.blocks)), make([]float64, len(g.blocks))
	samples := make([]float64, len(g.blocks))
	for addr, n := range e.Samples {
		if i := cfg.Find(g.blocks, addr); i >= 0 {
			samples[i] += float64(n)
		}
	}
	uncounted := map[*cfg.Function]bool{} // functions with an indirect jump whose targets are unknown
	direct := make([]bool, len(g.blocks))
	for i, b := range g.blocks {
		for _, c := range b.Calls {
			if to := g.begin(c.Target); to >= 0 {
				g.add(edge{from: i, to: to, share: 1})
			}
			g.addTargets(i, c.Address, e.Targets[c.Address])
		}
		next := g.begin(b.LastAddress + uint64(b.Last.Size))
		target := g.begin(b.Last.Target)
		switch b.Last.Kind {
		case instruction.Jump:
			g.taken[i] = 1
			if target >= 0 {
				g.add(edge{from: i, to: target, share: 1})
				direct[target] = true
			}
		case instruction.ConditionalJump, instruction.CounterJump:
			j := e.Jumps[b.LastAddress]
			share := g.takenShare(j, target, next, samples)
			g.taken[i] = share
			if target >= 0 {
				g.add(edge{from: i, to: target, share: share, outcomes: float64(j.Hits), guessed: j.Hits == 0})
				direct[target] = true
			}
			if next >= 0 {
				g.add(edge{from: i, to: next, share: 1 - share, outcomes: float64(j.Hits), guessed: j.Hits == 0})
				direct[next] = true
			}
		case instruction.IndirectJump:
			g.taken[i] = 1
			targets := e.Targets[b.LastAddress]
			if len(targets) == 0 {
				uncounted[b.Function] = true
			}
			g.addTargets(i, b.LastAddress, targets)
		case instruction.Return:
			g.taken[i] = 1
		case instruction.Stop:
		default:
			if next >= 0 {
				g.add(edge{from: i, to: next, share: 1})
				direct[next] = true
			}
		}
	}
	g.measure(e, samples)
	for i, b := range g.blocks {
		// Functions may be called from elsewhere, and exceptions may lead to blocks without
		// other predecessors.
		g.nodes[i].open = b.Start == b.Function.Start || !direct[i] && uncounted[b.Function]
	}
	return g
}

// takenShare returns the share of a conditional jump's executions that jump to block target
// rather than continue with block next; blocks are negative if they are not in the graph.
// Without counted outcomes, it is a guess from the samples of the blocks.
func (g *graph) takenShare(j Jump, target, next int, samples []float64) float64 {
	switch {
	case j.Hits > 0:
		return float64(j.Taken) / float64(j.Hits)
	case target < 0:
		return 0
	case next < 0:
		return 1
	case samples[target]+samples[next] > 0:
		t, n := samples[target]/float64(g.blocks[target].Instructions), samples[next]/float64(g.blocks[next].Instructions)
		return t / (t + n)
	}
	return 0.5
}

func sorted(m map[uint64]uint64) []uint64 {
	var keys []uint64
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// begin returns the block that begins at addr, or -1.
func (g *graph) begin(addr uint64) int {
	if i := cfg.Find(g.blocks, addr); i >= 0 && g.blocks[i].Start == addr {
		return i
	}
	return -1
}

// addTargets adds the edges of the indirect jump or call at addr in block from, given its counted
// targets.
func (g *graph) addTargets(from int, addr uint64, targets map[uint64]uint64) {
	sum := uint64(0)
	for _, n := range targets {
		sum += n
	}
	for _, target := range sorted(targets) {
		if to := g.begin(target); to >= 0 {
			e := edge{from: from, to: to, share: float64(targets[target]) / float64(sum), outcomes: float64(sum)}
			g.add(e)
			g.targets[addr] = append(g.targets[addr], e)
		}
	}
}

func (g *graph) add(e edge) { g.edges = append(g.edges, e) }

// The relative uncertainty of a rate and of a number of samples, in addition to chance. The
// samples of a block also depend on the speed of its instructions.
const (
	countSlack  = 0.05
	sampleSlack = 1
)

// instructionsPerSecond is a typical speed. If no rate is known, all counts are relative, and this
// gives them a scale on which the counts of rare blocks are not rounded to 0.
const instructionsPerSecond = 1e9

// measure sets the measured counts. The rate of a counted jump is the count of the block that
// it ends. A jump without hits measures nothing: if the program has phases, all of its windows
// may have missed the phase in which it is executed.
func (g *graph) measure(e Evidence, samples []float64) {
	var ratios []float64
	for i, b := range g.blocks {
		if j := e.Jumps[b.LastAddress]; samples[i] >= 5 && j.Hits >= 20 && j.Counted > 0 {
			ratios = append(ratios, j.Rate/(samples[i]/float64(b.Instructions)))
		}
	}
	// The executions per second for each sample and instruction.
	perSample := instructionsPerSecond * e.SampleSeconds / max(e.Seconds, 1e-9)
	if len(ratios) > 0 {
		slices.Sort(ratios)
		perSample = ratios[len(ratios)/2]
	}
	for i, b := range g.blocks {
		n := &g.nodes[i]
		one := perSample / float64(b.Instructions)
		n.measured = append(n.measured, measurement{count: samples[i] * one, relative: sampleSlack, one: one})
		if j := e.Jumps[b.LastAddress]; j.Hits > 0 && j.Counted > 0 {
			n.measured = append(n.measured, measurement{count: j.Rate, relative: math.Hypot(j.Error, countSlack), one: 1 / j.Counted})
		}
	}
}
