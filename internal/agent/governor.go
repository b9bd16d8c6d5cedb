package agent

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/sampling"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/session"
)

// Costs of the BPF programs. The kernel can measure them (`sysctl kernel.bpf_stats_enabled=1`,
// `bpftool prog`), but this is usually off. It showed 14 µs for a sample at 19 Hz. With off-CPU time,
// a context switch took 1.5 to 2 µs, and 0.4 times as long if one in 8 waits was measured.
const (
	costOfSample = 15 * time.Microsecond
	costOfWait   = 1500 * time.Nanosecond
	costOfNoWait = 500 * time.Nanosecond
)

// costOfSwitch returns the cost of a context switch while one in reduction waits is measured.
func costOfSwitch(reduction uint64) time.Duration {
	return costOfNoWait + costOfWait/time.Duration(max(reduction, 1))
}

// governor keeps an agent within its budget.
type governor struct {
	mu     sync.Mutex
	state  state
	before reading // at the last decision
	share  float64 // of the time of all CPUs that the agent used between the last two decisions
}

// reading is an agent's resource use from its start to a point in time.
type reading struct {
	at       time.Time
	self     time.Duration // user and system time
	bpf      procfs.BPF
	bpfAt    time.Time // of bpf
	measured bool      // whether bpf.RunTime grows
	switches uint64    // of threads, on the whole machine
	resident uint64
}

// newGovernor returns a governor with full credit, which also pays for the start of the process.
func newGovernor(b Budget) *governor {
	limitHeap(b.Memory, read(session.RecordOptions{NoOffCPU: true}, reading{}))
	return &governor{state: state{credit: maxCredit}, before: reading{at: time.Now()}}
}

// readBPFEvery is the time between two readings of the memory of BPF programs and maps, which
// take a few system calls for each open file.
const readBPFEvery = time.Minute

// read measures the agent's use of CPU time and memory. Values that cannot be read stay 0, and so does
// the number of switches unless off-CPU time is measured. If before, the last reading, is recent, read
// takes the memory of BPF programs and maps from it.
func read(o session.RecordOptions, before reading) reading {
	r := reading{at: time.Now(), self: ownTime(), measured: procfs.BPFStatistics(), bpf: before.bpf, bpfAt: before.bpfAt}
	if r.measured || r.at.Sub(r.bpfAt) >= readBPFEvery {
		r.bpf, _ = procfs.Self.BPF()
		r.bpfAt = r.at
	}
	if !o.NoOffCPU {
		r.switches, _ = procfs.ContextSwitches()
	}
	if status, err := procfs.Self.Status(); err == nil {
		r.resident = status.Resident
	}
	return r
}

// ownTime returns the user and system CPU time of the agent, with child processes that have
// ended.
func ownTime() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil {
			sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return sum
}

// since returns the use between two readings. samples is the number of CPU samples in between. One in
// reduction waits was measured.
func (r reading) since(before reading, cpus int, samples, reduction uint64) consumed {
	used := r.self - before.self
	switch {
	case r.measured && r.bpf.RunTime >= before.bpf.RunTime:
		used += r.bpf.RunTime - before.bpf.RunTime
	case r.measured: // the programs were loaded again
		used += r.bpf.RunTime
	default:
		used += time.Duration(samples) * costOfSample
		if before.switches > 0 && r.switches > before.switches {
			used += time.Duration(r.switches-before.switches) * costOfSwitch(reduction)
		}
	}
	u := consumed{elapsed: r.at.Sub(before.at), memory: r.resident + r.bpf.Memory}
	if u.elapsed > 0 {
		u.cpu = float64(used) / (float64(u.elapsed) * float64(max(cpus, 1)))
	}
	return u
}

// decide adapts to the agent's use since the last call. samples is the number of CPU samples since then.
// It returns a message for the administrator, "" if nothing has changed.
func (g *governor) decide(o Options, samples uint64) (news string) {
	cpus := runtime.NumCPU()
	if online, err := perfevent.OnlineCPUs(); err == nil {
		cpus = len(online)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := read(o.Measure, g.before)
	used := now.since(g.before, cpus, samples, g.state.limits().Reduction)
	old := g.state
	g.state, g.before, g.share = old.next(o.Budget, used), now, used.cpu
	limitHeap(o.Budget.Memory, now)
	return describe(old, g.state, o, used)
}

// describe returns the difference between two states, with the reason; "" if there is none.
func describe(old, now state, o Options, u consumed) string {
	after := now.limits()
	if old.limits() == after {
		return ""
	}
	text := fmt.Sprintf("within the budget again (%.2f %% of the CPUs, %.1f MiB)", 100*u.cpu, mebibytes(u.memory))
	switch {
	case now.step > old.step:
		text = fmt.Sprintf("above the limit of %.3g %% of the CPUs (%.2f %%)", 100*o.Budget.CPU, 100*u.cpu)
	case now.shed > old.shed:
		text = fmt.Sprintf("above the limit of %.1f MiB (%.1f MiB)", mebibytes(o.Budget.Memory), mebibytes(u.memory))
	}
	text += fmt.Sprintf(": sampling at %d Hz", frequency(o, after))
	if after.Reduction > 1 && !o.Measure.NoOffCPU {
		text += fmt.Sprintf(", measuring one in %d waits", after.Reduction)
	}
	if after.LessMemory {
		text += ", with small caches"
	}
	if after.NoSymbols {
		text += ", without looking up more functions"
	}
	return text
}

// frequency returns the rate in Hz under the limits l.
func frequency(o Options, l session.Limits) uint64 {
	return sampling.Rate{Frequency: o.Measure.Frequency}.Reduced(l.Reduction).Frequency
}

func mebibytes(n uint64) float64 { return float64(n) / (1 << 20) }

// limits returns the limits of the measurement, and the share of the time of all CPUs that the agent
// used between the last two decisions.
func (g *governor) limits() (l session.Limits, share float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.limits(), g.share
}

// minHeap is the smallest limit of Go's memory, in bytes.
const minHeap = 24 << 20

// limitHeap limits Go's memory to what BPF maps and mapped files, such as fulgur's own, leave of the
// agent's limit. GOMEMLIMIT takes precedence.
func limitHeap(limit uint64, now reading) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit == 0 {
		debug.SetMemoryLimit(math.MaxInt64)
		return
	}
	sample := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(sample)
	bytes := func(i int) uint64 { return sample[i].Value.Uint64() }
	others := now.bpf.Memory
	own := bytes(0) - bytes(1)
	if now.resident > own {
		others += now.resident - own
	}
	fixed := own - min(own, bytes(2)+bytes(3)+bytes(4))
	debug.SetMemoryLimit(int64(heapLimit(limit, others, fixed, bytes(5))))
}

// heapLimit returns the limit of Go's memory, in bytes. others is the memory that does not belong to Go,
// fixed is Go's memory outside the heap, and live is the part of the heap that the last garbage collection
// found in use.
//
// The heap can always grow by half of its live memory. With a limit near the live memory, the collector
// would run again and again, for up to half of the CPU time that Go may use, and free hardly anything.
// Only the governor's reductions make the live memory smaller.
func heapLimit(limit, others, fixed, live uint64) uint64 {
	return max(limit-min(limit, others), minHeap, fixed+live+live/2)
}
