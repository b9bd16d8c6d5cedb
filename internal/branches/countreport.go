package branches

import (
	"fmt"
	"strings"
	"time"

	"fulgur/internal/branches/jumps"
	"fulgur/internal/message/plain"
)

// countingReport describes the counting of jumps and its cost; see [jumps.Stats].
type countingReport struct {
	Windows  uint64 `json:"windows"`
	Jumps    uint64 `json:"jumps"`
	Outcomes uint64 `json:"outcomes"`
	// Refused is the number of jumps that can have neither a uprobe nor a breakpoint, and
	// RefusedShare their share of the executed branches, an estimate.
	Refused      uint64  `json:"refused_jumps"`
	RefusedShare float64 `json:"refused_share"`
	// NoBreakpoints is why there are no hardware breakpoints, if there are none.
	NoBreakpoints string `json:"no_breakpoints,omitempty"`
	// OpenSeconds is the time during which windows counted, and DisturbedSeconds the time
	// during which probes were in place.
	OpenSeconds      float64 `json:"open_seconds"`
	DisturbedSeconds float64 `json:"disturbed_seconds"`
	// Overhead is the share of the target's progress that was lost, nil if unknown.
	Overhead *float64 `json:"overhead"`
	// LongestStallSeconds is the longest time that a thread waited because of probes, and
	// LongStalls the number of windows in which one waited longer than allowed.
	LongestStallSeconds float64 `json:"longest_stall_seconds"`
	LongStalls          uint64  `json:"long_stalls"`
	// Breakpoints describes the use of hardware breakpoints, nil if there was none.
	Breakpoints *breakpointReport `json:"breakpoints,omitempty"`
	// Fallback is why breakpoints replaced uprobes, if they did.
	Fallback string `json:"fallback,omitempty"`
	// UncountedShare is the share of the samples in code of the binary whose jumps cannot
	// be counted: in functions that are left out, and outside of functions.
	UncountedShare float64 `json:"uncounted_share"`
	// LeftOut are the functions that were not counted.
	LeftOut []leftOutFunction `json:"left_out_functions"`

	maxStall time.Duration
	counted  uint64 // the sum of the windows of each jump
}

// breakpointReport describes the use of hardware breakpoints; see [jumps.BreakpointStats].
type breakpointReport struct {
	Windows        uint64  `json:"windows"`
	Hits           uint64  `json:"hits"`
	HitCostSeconds float64 `json:"hit_cost_seconds"`
	Taken          uint64  `json:"taken_by_others"`
	Gone           uint64  `json:"exited_threads"`
}

// leftOutFunction is a function whose jumps were not counted.
type leftOutFunction struct {
	Function string `json:"function"`
	Reason   string `json:"reason"`
}

func newCountingReport(s jumps.Stats, maxStall time.Duration) *countingReport {
	r := &countingReport{
		Windows: s.Windows, Jumps: s.Jumps, Outcomes: s.Outcomes, Refused: s.Refused,
		OpenSeconds: s.Open.Seconds(), DisturbedSeconds: s.Disturbed.Seconds(),
		LongestStallSeconds: s.LongestStall.Seconds(), LongStalls: s.Stalls,
		NoBreakpoints: s.NoBreakpoints, Fallback: s.Fallback, LeftOut: []leftOutFunction{}, maxStall: maxStall, counted: s.Counted,
	}
	if s.Measured {
		r.Overhead = &s.Overhead
	}
	if b := s.Breakpoints; b.Windows+b.Taken+b.Gone > 0 {
		r.Breakpoints = &breakpointReport{b.Windows, b.Hits, b.HitCost.Seconds(), b.Taken, b.Gone}
	}
	return r
}

// maxLeftOut limits the functions in the text.
const maxLeftOut = 5

// text writes the description of the counting.
func (r *countingReport) text(b *strings.Builder) {
	fmt.Fprintf(b, "  counted %s of %s", plain.Count(r.Outcomes, "outcome"), plain.Count(r.Jumps, "jump"))
	if r.Windows > 0 {
		fmt.Fprintf(b, " in %s of %.1f ms", plain.Count(r.Windows, "window"), 1e3*r.OpenSeconds/float64(r.Windows))
	}
	if r.Overhead != nil {
		fmt.Fprintf(b, "; the target lost %.1f %% of its progress", 100**r.Overhead)
	}
	if r.Windows > 0 {
		stall := time.Duration(r.LongestStallSeconds * float64(time.Second))
		fmt.Fprintf(b, "; longest stall of a thread: %v", stall.Round(100*time.Microsecond))
	}
	b.WriteByte('\n')
	if r.Fallback != "" {
		fmt.Fprintf(b, "  hardware breakpoints instead of uprobes: %s\n", plain.Terminal(r.Fallback))
	}
	if h := r.Breakpoints; h != nil {
		cost := time.Duration(h.HitCostSeconds * float64(time.Second))
		fmt.Fprintf(b, "  hardware breakpoints: %s in %s, %v each\n", plain.Count(h.Hits, "hit"), plain.Count(h.Windows, "window"), cost.Round(100*time.Nanosecond))
		if h.Taken > 0 {
			fmt.Fprintf(b, "  %s had too few breakpoints, or none: other tools used them\n", plain.Count(h.Taken, "window"))
		}
		if h.Gone > h.Windows {
			fmt.Fprintf(b, "  %s failed: the thread had exited\n", plain.Count(h.Gone, "window"))
		}
	}
	if r.LongStalls > 0 {
		fmt.Fprintf(b, "  in %s a thread was stalled for more than %v\n", plain.Count(r.LongStalls, "window"), r.maxStall)
	}
	if r.Refused > 0 {
		why := "they cannot have probes"
		if r.NoBreakpoints != "" {
			why = "unfit for uprobes, and " + plain.Terminal(r.NoBreakpoints)
		}
		fmt.Fprintf(b, "  %s not counted, about %.1f %% of the executed branches: %s\n", plain.Count(r.Refused, "jump"), 100*r.RefusedShare, why)
	}
	if r.UncountedShare > 0 {
		fmt.Fprintf(b, "  %.2f %% of the samples in the file are in code that was not counted\n", 100*r.UncountedShare)
	}
	for _, f := range r.LeftOut[:min(len(r.LeftOut), maxLeftOut)] {
		fmt.Fprintf(b, "  function left out: %s %s\n", plain.Terminal(f.Function), plain.Terminal(f.Reason))
	}
	if more := len(r.LeftOut) - maxLeftOut; more > 0 {
		fmt.Fprintf(b, "  and %s\n", plain.Count(uint64(more), "more function"))
	}
}
