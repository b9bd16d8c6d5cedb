package doctor

import (
	"errors"
	"io/fs"
	"slices"

	"fulgur/internal/linux/capability"
	"fulgur/internal/message/plain"
)

// FoundCycles is the outcome of [ProbeCycles] on a machine with a PMU.
const FoundCycles = "cycles"

// Errors of probes for features that the machine lacks.
var (
	// ErrNoPMU means that the machine cannot count cycles.
	ErrNoPMU = errors.New("none: the CPU has no PMU, or the hypervisor hides it")
	// ErrNoBranchRecords means that the machine cannot record branches.
	ErrNoBranchRecords = errors.New("none: the CPU has no Intel LBR, AMD BRS or LBRv2, or Arm BRBE, or the hypervisor hides it")
	// ErrNoJumps means that the machine cannot count jumps.
	ErrNoJumps = errors.New("none: it needs Linux 6.6 or newer on x86-64")
	// ErrNoBreakpoints means that a hardware breakpoint has no effect.
	ErrNoBreakpoints = errors.New("no effect: the hypervisor ignores them, or the CPU has none")
	// ErrNoSleepers means that no BPF program can read the stack of a sleeping thread.
	ErrNoSleepers = errors.New("none: the kernel is older than Linux 5.18")
	// ErrNoContention means that the kernel does not report waits for its locks.
	ErrNoContention = errors.New("none: the kernel is older than Linux 5.19")
	// ErrNoKprobes means that the kernel has no kprobes.
	ErrNoKprobes = errors.New("none: the kernel was built without kprobes")
)

// trials are the checks of the probes' outcomes.
var trials = slices.Concat([]check{
	trial(ProbePerfEvent, "perf_event", fault{stops: withBPF}),
	trial(ProbeUserEvents, "user_events", fault{stops: withPerf}),
	trial(ProbeStops, "ptrace", fault{stops: []Command{ProfilePtrace}}),
	trial(ProbeRing, "ring_buffer", fault{stops: withBPF}),
	trial(ProbeTracing, "tp_btf", fault{stops: withBPF}),
	trial(ProbeIterator, "iterator", fault{stops: withStacks}),
	trial(ProbeRawTracepoint, "raw_tp", fault{lost: "fulgur does not need it"}),
	trial(ProbeFentry, "fentry", fault{
		costs:  []Command{Faults, Record},
		lost:   "page faults are shown without latency",
		remedy: do("use a kernel with CONFIG_FUNCTION_TRACER and CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS; on arm64, Linux 6.4 or newer"),
	}),
	trial(ProbeKprobe, "kprobe", fault{
		costs:  []Command{Count, Latency, Slow},
		lost:   "kprobe and kretprobe events cannot be counted or timed",
		remedy: do("use a kernel with CONFIG_KPROBE_EVENTS, or tracepoints"),
	}),
	trial(ProbeUprobe, "uprobe", fault{
		stops:  []Command{Alloc},
		costs:  []Command{Count, Latency, Slow},
		lost:   "uprobe, uretprobe and usdt events cannot be counted or timed",
		remedy: do("use a kernel with CONFIG_UPROBE_EVENTS"),
	}),
	trial(ProbeTracepoint, "tracepoint", fault{
		stops:  []Command{Locks},
		costs:  []Command{Count, Latency, Slow},
		lost:   "tracepoints cannot be counted or timed",
		remedy: do("use a kernel with tracefs, and run fulgur with sudo"),
	}),
	trial(ProbeContention, "contention", fault{
		costs:  []Command{Locks},
		lost:   "only locks of programs are measured, not the kernel's",
		remedy: do("use Linux 5.19 or newer"),
	}),
	trial(ProbeKernelNames, "kernel_names", fault{
		costs: withStacks,
		lost:  "kernel functions are named from /proc/kallsyms, which is slower and needs CAP_SYSLOG",
	}),
	trial(ProbeSleepers, "sleeping_stacks", fault{
		costs: []Command{Profile, OffCPU, RunQ, Record},
		lost:  "threads that sleep when offcpu, runq, record or profile --wall begins have the user stack [before measurement] until they wake",
	}),
}, loadTrials(), []check{
	trial(ProbeCycles, "pmu", fault{
		costs:  []Command{Profile, Record},
		lost:   "fulgur samples cpu-clock, which attributes code that runs with interrupts disabled to the point where it enables them",
		remedy: do("give the virtual machine a PMU (QEMU: -cpu host,pmu=on), or profile on its host"),
	}),
	trial(ProbeBranchRecords, "branch_records", fault{
		costs: []Command{Bolt, AutoFDO},
		lost:  "profiles are estimates from counted jumps, or come from single-stepping; both slow the target down",
		remedy: func(f *Facts) Remedy {
			return Remedy{Do: "run fulgur on the virtual machine's host or on another machine, or use --branches " + f.waysToRecord()}
		},
	}),
	trial(ProbeJumps, "jump_counting", fault{
		stops:  []Command{BoltCounting},
		remedy: func(f *Facts) Remedy { return Remedy{Do: "use fulgur bolt --branches " + f.waysToRecord()} },
	}),
	trial(ProbeBreakpoints, "breakpoints", fault{
		stops: []Command{BoltBreakpoints},
		costs: []Command{BoltCounting},
		lost:  "jumps with some prefixes (gcc -fcf-protection), and on CPUs with shadow stacks also indirect calls, are not counted; uprobes that stall threads are not replaced",
		remedy: func(f *Facts) Remedy {
			return Remedy{Do: "use fulgur bolt --branches " + f.waysToRecord() + ", or run it on the virtual machine's host or on another machine"}
		},
	}),
})

// waysToRecord returns the values of --branches that work without branch records.
func (f *Facts) waysToRecord() string {
	ways := []string{"stepping"}
	if f.Tried[ProbeBreakpoints].Err == nil {
		ways = append([]string{"breakpoints"}, ways...)
	}
	if f.Tried[ProbeJumps].Err == nil {
		ways = append([]string{"counting"}, ways...)
	}
	return plain.Or(ways)
}

// eventKinds are the titles of the trials of the kinds of events that [Count] and [Latency] measure.
var eventKinds = []string{string(ProbeKprobe), string(ProbeUprobe), string(ProbeTracepoint)}

// loadTrials returns a check of the programs of each source: that they load.
func loadTrials() []check {
	var all []check
	for _, c := range commands {
		if slices.Contains(c.programs, c.name) {
			users := commandsThat(func(user command) bool { return slices.Contains(user.programs, c.name) })
			all = append(all, trial(ProbePrograms(c.name), string(c.name)+"_programs", fault{stops: users}))
		}
	}
	return all
}

// trial returns a check that p succeeds. failure describes the consequences if it
// fails; its remedy is for machines that lack the feature.
func trial(p Probe, id string, failure fault) check {
	lacking := failure.remedy
	failure.when = func(f *Facts) bool { return f.Tried[p].Err != nil }
	failure.what = func(f *Facts) string { return string(p) + ": " + failed(f.Tried[p].Err) }
	failure.plain = true
	failure.causes = func(f *Facts) []Problem { return f.causesOf(p) }
	failure.remedy = func(f *Facts) Remedy {
		switch {
		case refused(f.Tried[p].Err) && f.Lent != 0:
			return f.unknownCause()
		case lacking != nil:
			return lacking(f)
		case refused(f.Tried[p].Err):
			return f.unknownCause()
		case len(failure.stops) > 0:
			return Remedy{Do: "on " + f.oldest() + " or newer, this is a bug: report it with the output of fulgur doctor --json"}
		}
		return Remedy{}
	}
	return check{
		id: id, group: groupTried, title: string(p),
		value: func(f *Facts) string {
			outcome, tried := f.Tried[p]
			switch {
			case !tried:
				return "not tried"
			case outcome.Err != nil && !refused(outcome.Err) && len(f.causesOf(p)) > 0:
				return "fails"
			case outcome.Err != nil:
				return failed(outcome.Err)
			case outcome.Found != "":
				return outcome.Found
			}
			return "works"
		},
		faults: []fault{failure},
	}
}

// failed describes the failure of a probe.
func failed(err error) string {
	if refused(err) {
		return "refused"
	}
	return plain.Error(err)
}

// untyped lists the probes that do not need the kernel's BTF.
var untyped = []Probe{ProbePerfEvent, ProbeUserEvents, ProbeStops, ProbeRing, ProbeRawTracepoint, ProbeKprobe, ProbeUprobe, ProbeTracepoint, ProbeCycles, ProbeBranchRecords, ProbeBreakpoints}

// causesOf returns the problems that explain the failure of p, nil if none does.
func (f *Facts) causesOf(p Probe) []Problem {
	err, cause := f.Tried[p].Err, (*Problem)(nil)
	switch {
	case refused(err) && p == ProbeStops:
		cause = f.Judge(checkSeccomp)
	case refused(err):
		return f.causes(needs)
	case errors.Is(err, fs.ErrNotExist) && f.ForeignProc:
		cause = f.Judge(CheckProc)
	case !f.BTF && !slices.Contains(untyped, p):
		cause = f.Judge(checkBTF)
	}
	if cause == nil {
		return nil
	}
	return []Problem{*cause}
}

// needs are the capabilities that probes need.
var needs = capability.SetOf(capability.BPF, capability.Perfmon)

// causes guesses why the kernel refuses an operation that needs capabilities.
func (f *Facts) causes(needed capability.Set) []Problem {
	found := problems(grounds, f)
	return together(slices.DeleteFunc(found, func(p Problem) bool { return p.denies&needed == 0 }))
}
