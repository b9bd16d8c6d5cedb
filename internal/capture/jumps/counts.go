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
	// Targets counts where indirect jumps led. Addresses are link-time addresses.
	Targets map[Target]uint64

	windows []window
	anchors []uint32
}

// Jump is a conditional or indirect jump.
type Jump struct {
	// Address is its link-time address.
	Address     uint64
	Instruction instruction.Instruction
	// Windows is the number of windows in which it was counted, Hits how often it was
	// executed there, and Taken how often it jumped if it is conditional.
	Windows, Hits, Taken uint64
}

// Target is a target of an indirect jump.
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
		if j.Hits == 0 || j.Instruction.Kind != instruction.ConditionalJump {
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

// Rates estimates how often each jump is executed in a second of a window, by index, and
// returns for how many seconds it was counted.
//
// The number of hits of a jump in a window is its rate times how far the program got in
// the window, its progress. Both are unknown. Given the rates of the jumps that are
// neither rare nor hot, a window's progress is the quotient of their hits and their rates;
// given all progress, a jump's rate is the quotient of its hits and the progress of its
// windows. The two steps alternate, which increases the likelihood of the counts if these
// are Poisson-distributed. Hot jumps are left out of the first step: their counts vary by
// more than chance, because loops run in bursts.
func (c *Counts) Rates() (rates, seconds []float64) {
	rates, seconds = make([]float64, len(c.Jumps)), make([]float64, len(c.Jumps))
	progress := make([]float64, len(c.windows))
	total := 0.0
	for w := range c.windows {
		progress[w] = c.windows[w].open.Seconds()
		total += progress[w]
	}
	hits := make([]float64, len(c.Jumps))
	for range rounds {
		clear(hits)
		clear(seconds)
		for w, win := range c.windows {
			for _, h := range win.hits {
				hits[h.jump] += float64(h.hits)
				seconds[h.jump] += progress[w]
			}
		}
		for i := range rates {
			if seconds[i] > 0 {
				rates[i] = hits[i] / seconds[i]
			}
		}
		sum := 0.0
		for w, win := range c.windows {
			got, want := 0.0, 0.0
			for _, h := range win.hits {
				perWindow := rates[h.jump] * openTime.Seconds()
				if perWindow < middling/10 || perWindow > middling*10 || c.Jumps[h.jump].Windows < 2 {
					continue
				}
				// A jump with ten times the hits is not ten times as informative.
				weight := 1 / (1 + perWindow/middling)
				got += weight * float64(h.hits)
				want += weight * rates[h.jump]
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
	return rates, seconds
}
