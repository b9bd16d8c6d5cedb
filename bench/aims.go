package main

import (
	"fmt"
	"math"
)

// verdict is whether an aim is met.
type verdict struct {
	known, met bool
	figure     string // what was measured
}

// String returns the verdict as a cell of the table.
func (v verdict) String() string {
	switch {
	case !v.known:
		return "–"
	case v.met:
		return "✓ " + v.figure
	}
	return "✗ " + v.figure
}

// aim is something that fulgur is to reach in a scenario.
type aim struct {
	what  string
	judge func(medians, scenario) verdict
}

// medians are those of the tools by name, for one scenario.
type medians map[string]cost

// Limits of the aims.
const (
	samplesWithin = 0.01     // of perf's number of samples
	startLimit    = 0.1      // seconds
	rssOnePID     = 16 << 20 // bytes
	rssSystem     = 40 << 20 // bytes
	growthWithin  = 0.1      // of the short run's memory
)

// aims are those of the project.
var aims = []aim{
	{"samples within 1 % of perf record's", func(m medians, _ scenario) verdict {
		of, known := ratio(m, namePerf, func(c cost) float64 { return float64(c.Samples) })
		return verdict{known, math.Abs(of-1) <= samplesWithin, fmt.Sprintf("%+.2f %%", 100*(of-1))}
	}},
	{"no sample lost, none without its stack", func(m medians, _ scenario) verdict {
		c, known := m[nameFulgur]
		lost := c.Lost + c.Stackless
		return verdict{known, lost == 0, fmt.Sprint(lost)}
	}},
	{"BPF time a sample at most bcc's", func(m medians, s scenario) verdict {
		of, known := ratio(m, nameBCC, func(c cost) float64 { return c.perSample(s) })
		return verdict{known, of <= 1, times(of)}
	}},
	{"CPU below perf record -g's", func(m medians, _ scenario) verdict {
		// perf script's is not counted, though fulgur's includes names.
		of, known := ratio(m, namePerf, func(c cost) float64 { return c.CPU })
		return verdict{known, of < 1, times(of)}
	}},
	{"end to result below bcc's", func(m medians, _ scenario) verdict {
		of, known := ratio(m, nameBCC, func(c cost) float64 { return c.Result })
		return verdict{known, of < 1, times(of)}
	}},
	{"start to first sample below 0.1 s", func(m medians, s scenario) verdict {
		c, known := m[nameFulgur]
		return verdict{known && s.OnePID, c.Start < startLimit, fmt.Sprintf("%.3f s", c.Start)}
	}},
	{"resident memory below 16 MB (one process), 40 MB (system)", func(m medians, s scenario) verdict {
		c, known := m[nameFulgur]
		limit := uint64(rssSystem)
		if s.OnePID {
			limit = rssOnePID
		}
		return verdict{known, c.RSS < limit, megabytes(c.RSS) + " MB"}
	}},
}

// growth tells whether memory stayed within growthWithin of what it was
// after short.
func growth(short, long cost) verdict {
	by := float64(long.RSS)/float64(short.RSS) - 1
	return verdict{true, by <= growthWithin && long.Maps == short.Maps,
		fmt.Sprintf("%s → %s MB resident, %s → %s MB of maps",
			megabytes(short.RSS), megabytes(long.RSS), megabytes(short.Maps), megabytes(long.Maps))}
}

// ratio returns fulgur's figure as a multiple of the peer's.
func ratio(m medians, peer string, figure func(cost) float64) (of float64, known bool) {
	ours, haveOurs := m[nameFulgur]
	theirs, haveTheirs := m[peer]
	if !haveOurs || !haveTheirs || figure(theirs) <= 0 {
		return 0, false
	}
	return figure(ours) / figure(theirs), true
}

// perSample returns the BPF run time in nanoseconds that a sample cost.
//
// Of the whole system every run is a sample, also one that was then lost. A
// tool that samples all CPUs for the sake of one process runs in vain for
// others; those runs are part of what its samples cost.
func (c cost) perSample(s scenario) float64 {
	samples := c.Runs
	if s.OnePID {
		samples = c.Samples
	}
	if samples == 0 {
		return 0
	}
	return 1e9 * c.BPF / float64(samples)
}
