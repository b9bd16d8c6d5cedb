package alloc

import (
	"debug/elf"
	"fmt"
	"runtime"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/elffile"
)

// DefaultOverhead is the default of [Config.MaxOverhead].
const DefaultOverhead = 0.2

// overhead is the cost of the uprobes. Sampling reduces the number of stack walks, but not of
// hits.
type overhead struct {
	max float64 // share of the target's CPU time
	// costs are the CPU times of a hit by program, for the most expensive function that it
	// is attached to.
	costs [bpf.AllocAllocProgramALLOC_PROGRAMS]time.Duration
	// The state when counting began, when the windows of the target and of others began, and now.
	first, before, beforeOthers, last state
	// exceeded is the reason why the measurement has to end, "" if it need not, and remedy what
	// to do.
	exceeded, remedy string
}

// state has sums since some time.
type state struct {
	at      time.Time
	target  time.Duration // CPU time of the target
	trapped time.Duration // CPU time of its hits
	hits    uint64
	others  uint64        // hits of other processes
	lost    time.Duration // their CPU time
}

// Limits of a window: shorter ones are too short for the resolution of the clocks.
const (
	window     = 500 * time.Millisecond // CPU time of the target, or of hits of others
	checkEvery = 250 * time.Millisecond
)

// learn measures the cost of hits of functions in a file.
func (o *overhead) learn(file *elffile.File, functions []function) error {
	const longest = 8     // bytes that decide how the kernel treats an instruction
	shortest := uint64(1) // a return instruction is not followed by other code of the file in all cases
	if file.Machine() == elf.EM_AARCH64 {
		shortest = 4
	}
	for _, fn := range functions {
		code, err := file.Bytes(int64(fn.offset), longest, "function")
		if err != nil {
			return err
		}
		cost, err := uprobe.Cost(code)
		if err != nil {
			return err
		}
		o.costs[fn.program] = max(o.costs[fn.program], cost)
		end, err := uprobe.ReturnCost()
		if err == nil && len(fn.returns) > 0 {
			if code, err = file.Bytes(int64(fn.returns[0]), shortest, "return instruction"); err == nil {
				end, err = uprobe.Cost(code)
			}
		}
		if err != nil {
			return err
		}
		o.costs[ended] = max(o.costs[ended], end)
	}
	return nil
}

// begin begins the first window.
func (o *overhead) begin(s *Source) (err error) {
	o.first, err = o.now(s)
	o.before, o.beforeOthers, o.last = o.first, o.first, o.first
	return err
}

// check ends a window that is long enough, and notes whether it was too expensive.
func (o *overhead) check(s *Source) error {
	if o.exceeded != "" || o.first.at.IsZero() || time.Since(o.last.at) < checkEvery {
		return nil
	}
	now, err := o.now(s)
	if err == nil {
		o.judge(now, s.target)
	}
	return err
}

// judge compares the current state with the start of each window that is long enough.
func (o *overhead) judge(now state, t target.Target) {
	now.target = max(now.target, o.last.target) // without processes that have exited
	o.last = now
	if now.target-o.before.target >= window {
		if share, _ := now.since(o.before); share > o.max && o.max < 1 {
			o.exceeded = fmt.Sprintf("uprobes took %.0f %% of the target's CPU time", 100*share)
			o.remedy = "raise the limit, or run fulgur faults, which shows where memory grows at less cost"
		}
		o.before = now
	}
	if now.lost-o.beforeOthers.lost >= window {
		if _, share := now.since(o.beforeOthers); share > o.max && o.max < 1 && o.exceeded == "" {
			o.exceeded = fmt.Sprintf("uprobes took %.0f %% of the machine's CPU time in other processes, which map the same files", 100*share)
			o.remedy = fmt.Sprintf("use %s without %s, which spares other processes, or raise the limit", usage.Process, usage.Children)
			if uprobe.IsOwn(t) {
				o.remedy = "the kernel cannot spare them, since it is too old or the first thread of the target has ended: raise the limit"
			}
		}
		o.beforeOthers = now
	}
}

// end takes the final state.
func (o *overhead) end(s *Source) error {
	now, err := o.now(s)
	if err == nil {
		now.target = max(now.target, o.last.target)
		o.last = now
	}
	return err
}

// since returns the shares of CPU time, from 0 to 1, that went to hits since an earlier state:
// of the target's time and, in other processes, of the machine's.
func (s state) since(before state) (target, others float64) {
	machine := s.at.Sub(before.at) * time.Duration(runtime.NumCPU())
	return share(s.trapped-before.trapped, s.target-before.target), share(s.lost-before.lost, machine)
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return min(float64(part)/float64(whole), 1)
}

// now returns the current state.
func (o *overhead) now(s *Source) (state, error) {
	traps, err := s.traps()
	if err != nil {
		return state{}, err
	}
	total, err := s.cpuTime()
	now := state{at: time.Now(), target: total, trapped: time.Duration(traps.Walking), others: traps.Others}
	worst := time.Duration(0)
	for program, hits := range traps.Hits {
		now.hits += hits
		now.trapped += time.Duration(hits) * o.costs[program]
		worst = max(worst, o.costs[program])
	}
	now.lost = time.Duration(traps.Others) * worst
	return now, err
}

// cpuTime returns the CPU time of the target so far: without processes that have exited,
// unless a parent in the target has waited for them.
func (s *Source) cpuTime() (time.Duration, error) {
	if s.target.Scope == target.System {
		return procfs.BusyTime()
	}
	pids, err := target.Measured(s.target, s.Targets)
	if err != nil {
		return 0, err
	}
	var ticks uint64
	for _, pid := range pids {
		stat, err := procfs.Process(pid).Stat()
		if err != nil {
			continue // it has exited
		}
		ticks += stat.CPU
		if s.target.Children || s.target.Scope == target.Cgroup {
			ticks += stat.ChildrenCPU
		}
	}
	return time.Duration(ticks) * procfs.Tick, nil
}

// note describes the overhead, "" if there were no hits.
func (o *overhead) note() string {
	hits := o.last.hits - o.first.hits
	if hits == 0 {
		return ""
	}
	target, _ := o.last.since(o.first)
	text := fmt.Sprintf("overhead: %s of uprobes took about %s of CPU time", plain.Count(hits, "hit"), (o.last.trapped - o.first.trapped).Round(time.Millisecond))
	if o.last.target-o.first.target >= window {
		text += fmt.Sprintf(", %.0f %% of the target's", 100*target)
	}
	if others := o.last.others - o.first.others; others > 0 {
		text += fmt.Sprintf("; there were %d in other processes", others)
	}
	return text
}
