package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// verdict shows whether an aim is met.
type verdict struct {
	known, met bool
	figure     string // the measured value
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

// aim is a goal of fulgur in some scenarios.
type aim struct {
	what  string
	judge func(outcomes, scenario) verdict
}

// outcomes holds the runs of one scenario by tool name.
type outcomes map[string][]cost

// median returns the median of a tool's runs. It returns false if the tool has no runs.
func (o outcomes) median(name string) (of cost, known bool) {
	if len(o[name]) == 0 {
		return cost{}, false
	}
	return median(o[name]), true
}

// Limits of the aims, for one process and for the whole system: CPU time and time to the
// result in seconds, memory in bytes.
const (
	samplesWithin   = 0.01 // of perf's number of samples
	startOnePID     = 0.10
	startSystem     = 0.25
	resultSystem    = 0.15
	memoryOnePID    = 16 << 20
	memorySystem    = 28 << 20
	growthWithin    = 0.1 // of the short run's memory
	churnEnd        = 0.15
	churnSteadySlow = 0.01 // of a CPU, at 19 Hz
	churnSteadyFP   = 0.03 // at 999 Hz
	churnSteadyAuto = 0.05
	agentSteady     = 0.003 // of a CPU, with BPF programs
	agentChurn      = 0.01
)

// aims are the project's aims, for each unwinding method.
var aims = slices.Concat(
	aimsOf(nameFulgur),
	aimsOf(nameTables),
	[]aim{{"agent: with BPF programs at most 0.3 % of a CPU, 1 % with short processes", judgeAgent}},
)

// judgeAgent judges the cost of an agent in its steady state.
func judgeAgent(o outcomes, s scenario) verdict {
	c, known := o.median(nameAgent)
	limit := agentSteady
	if s.Churn {
		limit = agentChurn
	}
	share := c.Steady + c.BPFShare
	return verdict{known && c.Steady > 0, share <= limit, fmt.Sprintf("%.2f %%", 100*share)}
}

// aimsOf returns the aims of one of fulgur's two tools.
func aimsOf(name string) []aim {
	tables := name == nameTables
	list := []aim{
		{"samples within 1 % of perf record's", func(o outcomes, s scenario) verdict {
			of, known := ratio(o, name, namePerf, func(c cost) float64 { return float64(c.Samples) })
			return verdict{known && !s.Churn, math.Abs(of.median-1) <= samplesWithin, fmt.Sprintf("%+.2f %%", 100*(of.median-1))}
		}},
		{"no sample lost, none without its stack", func(o outcomes, _ scenario) verdict {
			c, known := o.median(name)
			lost := c.Lost + c.Stackless
			return verdict{known, lost == 0, fmt.Sprint(lost)}
		}},
		{"BPF time a sample, of bcc's: " + bpfAim(tables), func(o outcomes, s scenario) verdict {
			of, known := ratio(o, name, nameBCC, func(c cost) float64 { return c.perSample(s) })
			return verdict{known && !s.Churn, of.median <= bpfLimit(tables, s), of.String()}
		}},
		{"CPU at most perf record's" + withScript(tables), func(o outcomes, s scenario) verdict {
			// perf script finds the names; fulgur's time includes that.
			of, known := ratioOf(o, name, namePerf,
				func(c cost) float64 { return c.CPU },
				func(c cost) float64 { return c.script(tables || s.Churn) })
			return verdict{known && (!s.Churn || s.Frequency == 99), of.median <= 1, of.String()}
		}},
		{"CPU to the first sample at most 0.10 s (one process), 0.25 s (system)", func(o outcomes, s scenario) verdict {
			c, known := o.median(name)
			limit := startSystem
			if s.OnePID {
				limit = startOnePID
			}
			return verdict{known, c.StartCPU <= limit, fmt.Sprintf("%.2f s", c.StartCPU)}
		}},
		{"end to result at most 0.15 s (system)", func(o outcomes, s scenario) verdict {
			c, known := o.median(name)
			return verdict{known && !s.OnePID && !s.Churn, c.Result <= resultSystem, fmt.Sprintf("%.3f s", c.Result)}
		}},
		{"anonymous memory and BPF maps at most 16 MB (one process), 28 MB (system)", func(o outcomes, s scenario) verdict {
			c, known := o.median(name)
			limit := uint64(memorySystem)
			if s.OnePID {
				limit = memoryOnePID
			}
			return verdict{known && !s.Churn, c.Anonymous+c.Maps <= limit, megabytes(c.Anonymous) + " + " + megabytes(c.Maps) + " MB"}
		}},
		{"short processes, steady state: at most 1 % of a CPU at 19 Hz, " + churnAim(tables) + " at 999 Hz", func(o outcomes, s scenario) verdict {
			c, known := o.median(name)
			limit, judged := churnLimit(tables, s.Frequency)
			return verdict{known && s.Churn && judged && c.Steady > 0, c.Steady <= limit, fmt.Sprintf("%.1f %%", 100*c.Steady)}
		}},
		{"short processes, CPU from the first sample to the end at most perf record's", func(o outcomes, s scenario) verdict {
			of, known := ratio(o, name, namePerf, func(c cost) float64 { return c.Running })
			return verdict{known && s.Churn && s.Frequency == 19, of.median <= 1, of.String()}
		}},
		{"short processes, CPU after the last sample at most 0.15 s", func(o outcomes, s scenario) verdict {
			c, known := o.median(name)
			return verdict{known && s.Churn && s.Frequency == 19, c.EndCPU <= churnEnd, fmt.Sprintf("%.2f s", c.EndCPU)}
		}},
	}
	for i := range list {
		list[i].what = strings.TrimPrefix(name, "fulgur ") + ": " + list[i].what
	}
	return list
}

// bpfLimit is the maximum BPF time per sample, as a multiple of bcc's. Only unwind tables show
// the callers of code without frame pointers, so they may cost more.
func bpfLimit(tables bool, s scenario) float64 {
	switch {
	case !tables:
		return 0.7
	case s.Frequency >= 4999:
		return 0.8
	}
	return 1
}

// bpfAim describes bpfLimit.
func bpfAim(tables bool) string {
	if tables {
		return "at most 0.8 at 4999 Hz, else 1"
	}
	return "at most 0.7"
}

// churnLimit returns the maximum share of a CPU in the steady state, and false if there is
// no such aim.
func churnLimit(tables bool, frequency int) (limit float64, ok bool) {
	switch {
	case frequency == 19:
		return churnSteadySlow, true
	case frequency != 999:
		return 0, false
	case tables:
		return churnSteadyAuto, true
	}
	return churnSteadyFP, true
}

// churnAim describes churnLimit at 999 Hz.
func churnAim(tables bool) string {
	limit, _ := churnLimit(tables, 999)
	return fmt.Sprintf("%.0f %%", 100*limit)
}

// script returns the CPU time, optionally including the second program's.
func (c cost) script(with bool) float64 {
	if with {
		return c.CPU + c.CPUAfter
	}
	return c.CPU
}

// withScript describes what script adds.
func withScript(with bool) string {
	if with {
		return " and perf script's"
	}
	return ""
}

// growth reports whether memory stayed within growthWithin of the memory of the run
// short.
func growth(short, long cost) verdict {
	by := float64(long.RSS)/float64(short.RSS) - 1
	return verdict{true, by <= growthWithin && long.Maps == short.Maps,
		fmt.Sprintf("%s → %s MB resident, %s → %s MB of maps",
			megabytes(short.RSS), megabytes(long.RSS), megabytes(short.Maps), megabytes(long.Maps))}
}

// ratio returns the spread, over the rounds, of a tool's figure divided by the peer's.
func ratio(o outcomes, name, peer string, figure func(cost) float64) (of spread, known bool) {
	return ratioOf(o, name, peer, figure, figure)
}

// ratioOf is like ratio with another figure of the peer.
func ratioOf(o outcomes, name, peer string, figure, peers func(cost) float64) (of spread, known bool) {
	var ratios []float64
	for _, ours := range o[name] {
		i := slices.IndexFunc(o[peer], func(c cost) bool { return c.Round == ours.Round })
		if i >= 0 && peers(o[peer][i]) > 0 {
			ratios = append(ratios, figure(ours)/peers(o[peer][i]))
		}
	}
	return spreadOf(ratios), len(ratios) > 0
}

// perSample returns the BPF run time per sample, in nanoseconds.
//
// In a scenario of the whole system, each run of the program takes a sample, which may be
// lost later. A tool that samples all CPUs to see one process also runs for the other
// processes; these runs are part of the cost of its samples.
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
