package jumps

import (
	"math"
	"slices"
	"time"

	"fulgur/internal/symbols/instruction"
)

// Counts are the counts of all windows.
type Counts struct {
	// Jumps are the jumps found.
	Jumps []Jump
	// Targets counts where indirect jumps and calls led. Addresses are link-time addresses.
	Targets map[Target]uint64

	windows []window
	anchors []uint32
}

// Jump is a conditional or indirect jump, or an indirect call.
type Jump struct {
	// Address is its link-time address.
	Address     uint64
	Instruction instruction.Instruction
	// Breakpoint is whether breakpoints count it. They show its outcomes, but not its rate.
	Breakpoint bool
	// Windows is the number of windows in which it was counted, Hits how often it was
	// executed there, and Taken how often it jumped if it is conditional.
	Windows, Hits, Taken uint64
}

// Target is a target of an indirect jump or call.
type Target struct{ From, To uint64 }

// window holds the counts of a window.
type window struct {
	open time.Duration
	hits []windowHits
}

// windowHits are the hits of a jump in a window.
type windowHits struct{ jump, hits uint32 }

// middling is the number of hits in a window that an anchor should have: enough for a
// precise count, and few enough to cost little.
const middling = 40

// chooseAnchors chooses the jumps whose mean hits are closest to middling. Anchors that
// still fit stay.
func (c *Counts) chooseAnchors() {
	type candidate struct {
		index    uint32
		distance float64
	}
	var all []candidate
	for i, j := range c.Jumps {
		if j.Hits == 0 || j.Breakpoint || j.Instruction.Kind != instruction.ConditionalJump {
			continue
		}
		d := math.Abs(math.Log(float64(j.Hits) / float64(j.Windows) / middling))
		if slices.Contains(c.anchors, uint32(i)) {
			d-- // a change costs comparability
		}
		all = append(all, candidate{uint32(i), d})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		switch {
		case a.distance < b.distance:
			return -1
		case a.distance > b.distance:
			return 1
		}
		return int(a.index) - int(b.index)
	})
	c.anchors = c.anchors[:0]
	for _, a := range all[:min(len(all), anchorCount)] {
		c.anchors = append(c.anchors, a.index)
	}
}

// rounds is the number of rounds in which Rates approaches the solution.
const rounds = 20

// Rate is an estimate of how often a jump is executed.
type Rate struct {
	// PerSecond is the number of executions in a second of a window.
	PerSecond float64
	// Seconds is the time for which the jump was counted.
	Seconds float64
	// Error is the standard error of PerSecond relative to PerSecond, from the differences
	// between the jump's windows: 0.1 means 10 %. It is 0 if the jump was never hit.
	Error float64
}

// fewWindows is added to the sum of the squared deviations of a jump's windows from their
// mean, in units of the mean, since few windows may be close to each other by chance.
const fewWindows = 4

// Rates estimates how often each jump is executed, by index.
//
// The number of hits of a jump in a window is its rate times how far the program got in
// the window, its progress. Both are unknown. Given the rates of the jumps that are
// neither rare nor hot, a window's progress is the quotient of their hits and their rates;
// given all progress, a jump's rate is the quotient of its hits and the progress of its
// windows. The two steps alternate, which increases the likelihood of the counts if these
// are Poisson-distributed. Hot jumps are left out of the first step: their counts vary by
// more than chance, because loops run in bursts.
//
// A program with phases executes some jumps in a few windows only, but often, so that the error
// of a rate is much larger than the number of hits suggests.
func (c *Counts) Rates() []Rate {
	rates := make([]Rate, len(c.Jumps))
	progress := make([]float64, len(c.windows))
	total := 0.0
	for w := range c.windows {
		progress[w] = c.windows[w].open.Seconds()
		total += progress[w]
	}
	hits := make([]float64, len(c.Jumps))
	for range rounds {
		clear(hits)
		for i := range rates {
			rates[i].Seconds = 0
		}
		for w, win := range c.windows {
			for _, h := range win.hits {
				hits[h.jump] += float64(h.hits)
				rates[h.jump].Seconds += progress[w]
			}
		}
		for i := range rates {
			if r := &rates[i]; r.Seconds > 0 {
				r.PerSecond = hits[i] / r.Seconds
			}
		}
		sum := 0.0
		for w, win := range c.windows {
			got, want := 0.0, 0.0
			for _, h := range win.hits {
				perWindow := rates[h.jump].PerSecond * openTime.Seconds()
				if perWindow < middling/10 || perWindow > middling*10 || c.Jumps[h.jump].Windows < 2 {
					continue
				}
				// A jump with ten times the hits is not ten times as informative.
				weight := 1 / (1 + perWindow/middling)
				got += weight * float64(h.hits)
				want += weight * rates[h.jump].PerSecond
			}
			// One more hit of the mean, so that a window with few hits is near the mean.
			open := win.open.Seconds()
			progress[w] = open * (got + 1) / (want*open + 1)
			sum += progress[w]
		}
		if sum > 0 {
			for w := range progress {
				progress[w] *= total / sum
			}
		}
	}
	c.setErrors(rates, progress, hits)
	return rates
}

// setErrors sets the errors of the rates, given the progress of each window and the hits of
// each jump in all windows.
func (c *Counts) setErrors(rates []Rate, progress, hits []float64) {
	squares := make([]float64, len(rates)) // sums
	windows := make([]float64, len(rates))
	for w, win := range c.windows {
		for _, h := range win.hits {
			deviation := float64(h.hits) - rates[h.jump].PerSecond*progress[w]
			squares[h.jump] += deviation * deviation
			windows[h.jump]++
		}
	}
	for i := range rates {
		if hits[i] == 0 {
			continue
		}
		mean := hits[i] / windows[i]
		rates[i].Error = math.Sqrt(squares[i]/(mean*mean)+fewWindows) / windows[i]
	}
}
