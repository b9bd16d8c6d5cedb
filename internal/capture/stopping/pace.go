package stopping

import "time"

// Limits on the cost. Stops may take one part in heldShare of the CPU time of the target, and the sampler's own work one part
// in ownShare of a CPU. Otherwise, there are fewer rounds.
const (
	heldShare = 33
	ownShare  = 10
	// maxHeldTime bounds the time of a stop that counts. Longer ones are those of a busy machine: the sampler waits for a CPU, as
	// the target would.
	maxHeldTime = 500 * time.Microsecond
)

// pace adapts the time between two rounds to their cost.
type pace struct {
	// wanted is the time between two rounds if the cost allows it, and interval the current one.
	wanted, interval time.Duration
	own, held        time.Duration // average cost of a round: own CPU time, and time of a stop
	unlimited        bool          // by cost, for tests
}

func newPace(wanted time.Duration) pace { return pace{wanted: wanted, interval: wanted} }

// took notes the cost of a round: the CPU time that it took here, and the mean time of its stops.
func (p *pace) took(own, held time.Duration) {
	const weight = 8 // of the average so far, in rounds
	average := func(old, now time.Duration) time.Duration {
		if old == 0 {
			return now
		}
		return (old*(weight-1) + now) / weight
	}
	p.own, p.held = average(p.own, own), average(p.held, min(held, maxHeldTime))
	if p.unlimited {
		return
	}
	p.interval = max(p.wanted, ownShare*p.own, heldShare*p.held)
}
