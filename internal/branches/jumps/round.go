package jumps

import (
	"math/rand/v2"
	"slices"
)

// round chooses the jumps to count next: new ones first, then all in turn.
type round struct {
	fresh []uint32 // found, not yet counted
	deck  []uint32 // the rest of this round
}

// take removes up to n allowed jumps. deal returns the jumps of the next round.
func (r *round) take(n int, allowed func(uint32) bool, deal func() []uint32) (group []uint32) {
	add := func(from *[]uint32) {
		for len(group) < n && len(*from) > 0 {
			last := len(*from) - 1
			index := (*from)[last]
			*from = (*from)[:last]
			if allowed(index) && !slices.Contains(group, index) { // a new one may be in the next round already
				group = append(group, index)
			}
		}
	}
	shuffle(r.fresh)
	add(&r.fresh)
	if len(group) < n && len(r.deck) == 0 {
		r.deck = deal()
		shuffle(r.deck)
	}
	add(&r.deck)
	return group
}

func shuffle(jumps []uint32) {
	rand.Shuffle(len(jumps), func(i, j int) { jumps[i], jumps[j] = jumps[j], jumps[i] })
}

// unhit is the number of windows without a hit after which a jump is counted less often.
const unhit = 3

// deal returns the jumps of a round: those that fit.
func (c *Counter) deal(fits func(*Jump) bool) (deck []uint32) {
	for i := range c.counts.Jumps {
		j := &c.counts.Jumps[i]
		if fits(j) && (j.Hits > 0 || j.Windows < unhit || rand.IntN(4) == 0) {
			deck = append(deck, uint32(i))
		}
	}
	return deck
}
