package agent

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/session"
)

// Costs of the BPF programs, in place of the kernel's own measurement, which is usually off:
// `sysctl kernel.bpf_stats_enabled=1` and `bpftool prog` showed 14 µs for a sample at 19
// Hz, and with off-CPU time 5.2 µs for a switch of threads, two thirds of which counted.
const (
	costOfSample = 15 * time.Microsecond
	costOfSwitch = 4 * time.Microsecond
)

// governor keeps an agent within its budget.
type governor struct {
	mu     sync.Mutex
	state  state
	before reading // at the last decision
	share  float64 // of all CPUs' time, that the agent used between the last two decisions
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

// newGovernor returns a governor that has full credit, and spends it from the start of the
// process on.
func newGovernor(b Budget) *governor {
	limitHeap(b.Memory, read(session.RecordOptions{NoOffCPU: true}, reading{}))
	return &governor{state: state{credit: maxCredit}, before: reading{at: time.Now()}}
}

// readBPFEvery is the time between two readings of the memory of BPF programs and maps, which
// take a few system calls for each open file.
const readBPFEvery = time.Minute

// read measures the agent's use of CPU time and memory. Values that cannot be read stay 0.
// Only off-CPU time needs the number of switches. The memory of BPF programs and maps may come
// from before, the last reading.
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

// since returns the use between two readings. samples were taken meanwhile.
func (r reading) since(before reading, cpus int, samples uint64) consumed {
	used := r.self - before.self
	switch {
	case r.measured && r.bpf.RunTime >= before.bpf.RunTime:
		used += r.bpf.RunTime - before.bpf.RunTime
	case r.measured: // the programs were loaded again
		used += r.bpf.RunTime
	default:
		used += time.Duration(samples) * costOfSample
		if before.switches > 0 && r.switches > before.switches {
			used += time.Duration(r.switches-before.switches) * costOfSwitch
		}
	}
	u := consumed{elapsed: r.at.Sub(before.at), memory: r.resident + r.bpf.Memory}
	if u.elapsed > 0 {
		u.cpu = float64(used) / (float64(u.elapsed) * float64(max(cpus, 1)))
	}
	return u
}

// decide adapts to the agent's use since the last call, in which samples were taken. It
// returns a message for the administrator, "" if nothing has changed.
func (g *governor) decide(o Options, samples uint64) (news string) {
	cpus := runtime.NumCPU()
	if online, err := perfevent.OnlineCPUs(); err == nil {
		cpus = len(online)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := read(o.Measure, g.before)
	used := now.since(g.before, cpus, samples)
	old := g.state
	g.state, g.before, g.share = old.next(o.Budget, o.Measure.Frequency, used), now, used.cpu
	limitHeap(o.Budget.Memory, now)
	return describe(old, g.state, o, used)
}

// describe returns the difference between two states, with the reason; "" if there is none.
func describe(old, now state, o Options, u consumed) string {
	f := o.Measure.Frequency
	after := now.limits(f)
	if old.limits(f) == after {
		return ""
	}
	text := fmt.Sprintf("within the budget again (%.2f %% of the CPUs, %.1f MiB)", 100*u.cpu, mebibytes(u.memory))
	switch {
	case now.step > old.step:
		text = fmt.Sprintf("above the limit of %.3g %% of the CPUs (%.2f %%)", 100*o.Budget.CPU, 100*u.cpu)
	case now.shed > old.shed:
		text = fmt.Sprintf("above the limit of %.1f MiB (%.1f MiB)", mebibytes(o.Budget.Memory), mebibytes(u.memory))
	}
	text += fmt.Sprintf(": sampling at %d Hz", cmp.Or(after.Frequency, f))
	if after.LessMemory {
		text += ", with small caches"
	}
	if after.NoSymbols {
		text += ", without looking up more functions"
	}
	return text
}

func mebibytes(n uint64) float64 { return float64(n) / (1 << 20) }

// limits returns the limits of the measurement, and the share of the CPU time that the agent
// used lately.
func (g *governor) limits(f uint64) (l session.Limits, share float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.limits(f), g.share
}

// minHeap is the smallest limit of Go's memory, in bytes. Below the memory in use, the garbage
// collector would run all the time.
const minHeap = 24 << 20

// limitHeap gives Go the rest of the limit besides BPF maps and the files that are mapped,
// such as fulgur's own. GOMEMLIMIT takes precedence.
func limitHeap(limit uint64, now reading) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit == 0 {
		debug.SetMemoryLimit(math.MaxInt64)
		return
	}
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	others := now.bpf.Memory
	if own := sample[0].Value.Uint64() - sample[1].Value.Uint64(); now.resident > own {
		others += now.resident - own
	}
	debug.SetMemoryLimit(int64(max(limit, others+minHeap) - others))
}
