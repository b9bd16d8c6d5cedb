package jumps

import "time"

// pace spaces windows out by the target's progress, which is the number of samples of its
// code: while threads wait or handle breakpoints, there are none. Samples do not show all of the
// time that hits take, though. Interrupts are disabled at the beginning and at the end of a hit, so
// that the interrupt of a sample may come right after it, and caches are cold. Therefore pace adds
// the time of the hits, by their cost as measured in this process.
type pace struct {
	frequency uint64 // of the samples, in Hz and CPU

	// The sums so far: samples without and with probes, and the times of both.
	samples [2]uint64
	times   [2]time.Duration
	hits    time.Duration // CPU time of all hits
	// The same, with older windows counting less.
	recent      [2]float64
	recentTimes [2]float64 // s
	recentHits  float64    // s
	windows     float64    // number of windows in them
	last        [2]uint64  // sums at the last update
	lastTimes   [2]time.Duration
	lastHits    time.Duration
}

// forget is the factor by which older windows count less.
const forget = 0.95

// Limits of the pause between windows. Some pause is needed to see the target's progress
// without probes.
const (
	shortestRest = 20 * time.Millisecond
	longestRest  = time.Minute
)

// leastShare is the share of the disturbed time that counts as lost at least: what windows
// cost a busy thread on a machine with an idle CPU. On a crowded machine the share cannot be
// measured well, because others take turns with the target.
const leastShare = 0.1

// fewSamples are too few samples to compare the phases.
const fewSamples = 50

// update takes the sums of samples in both phases after the time elapsed. Probes disturbed
// the target for a part of this time. hits is the sum of the time of all hits.
func (p *pace) update(samples [2]uint64, elapsed, disturbed, hits time.Duration) {
	p.samples, p.times = samples, [2]time.Duration{elapsed - disturbed, disturbed}
	p.windows = p.windows*forget + 1
	for phase := range 2 {
		p.recent[phase] = p.recent[phase]*forget + float64(p.samples[phase]-p.last[phase])
		p.recentTimes[phase] = p.recentTimes[phase]*forget + (p.times[phase] - p.lastTimes[phase]).Seconds()
	}
	p.hits = hits
	p.recentHits = p.recentHits*forget + (p.hits - p.lastHits).Seconds()
	p.last, p.lastTimes, p.lastHits = p.samples, p.times, p.hits
}

// hitShare returns the share of its time that the target lost to hits. samples and seconds, both without
// probes, show how many threads are busy; hits is the sum of the time of hits in all of them, within the
// time during.
func (p *pace) hitShare(samples, seconds, hits, during float64) float64 {
	if samples < fewSamples || seconds <= 0 || during <= 0 {
		return 0
	}
	busy := samples / float64(p.frequency) / seconds // threads
	return hits / busy / during
}

// lostShare returns the share of the disturbed time that the target lost. ok is false if
// there are too few samples.
func lostShare(samples, seconds [2]float64) (share float64, ok bool) {
	if seconds[0] <= 0 || seconds[1] <= 0 || samples[0] < fewSamples {
		return 1, false
	}
	expected := samples[0] / seconds[0] * seconds[1]
	if expected < fewSamples {
		return 1, false
	}
	return min(max(1-samples[1]/expected, 0), 1), true
}

// overall returns the share of its time that the target has lost so far.
func (p *pace) overall() (share float64, ok bool) {
	seconds := [2]float64{p.times[0].Seconds(), p.times[1].Seconds()}
	share, ok = lostShare([2]float64{float64(p.samples[0]), float64(p.samples[1])}, seconds)
	if !ok {
		return 0, false
	}
	share = min(share+p.hitShare(float64(p.samples[0]), seconds[0], p.hits.Seconds(), seconds[1]), 1)
	return share * seconds[1] / (seconds[0] + seconds[1]), true
}

// rest returns the pause until the next window, so that the target loses at most the share
// overhead of its time, as far as samples show it. As long as nothing is known, all of the
// disturbed time counts as lost.
func (p *pace) rest(overhead float64) time.Duration {
	if p.windows < 1 {
		return time.Second / 2
	}
	share, ok := lostShare(p.recent, p.recentTimes)
	if ok {
		hits := p.hitShare(p.recent[0], p.recentTimes[0], p.recentHits, p.recentTimes[1])
		share = min(max(share, leastShare)+hits, 1)
	}
	window := p.recentTimes[1] / p.windows
	pause := window*share/overhead - window
	return min(max(time.Duration(pause*float64(time.Second)), shortestRest), longestRest)
}
