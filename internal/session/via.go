package session

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stopping"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/tracing"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes/known"
)

// Values of [Options.Via] that demand one way.
const (
	viaBPF    = "bpf"
	viaPerf   = "perf"
	viaPtrace = "ptrace"
)

// chooseVia decides how to sample: by BPF programs if fulgur may load them, otherwise by perf events alone if they can
// sample the subject, and otherwise by stopping threads if that is possible.
func (o *Options) chooseVia(what source.Subject) error {
	switch o.Via {
	case viaPerf:
		return o.preparePerf(what)
	case viaPtrace:
		return o.prepareStops(what)
	}
	err := doctor.CheckPrivileges(what.Command(), o.Stderr, o.Quiet)
	var lacking *doctor.Error
	switch {
	case err == nil || o.Via == viaBPF || !errors.As(err, &lacking):
		return err
	case o.preparePerf(what) == nil:
		o.Via = viaPerf
	case o.prepareStops(what) == nil:
		o.Via = viaPtrace
	default:
		return err
	}
	return nil
}

// own are the parts of a subject that can be measured without BPF programs.
type own struct {
	cpu   *oncpu.Subject  // nil for waits alone
	waits *offcpu.Subject // nil for running code alone
	// whole is the recording that has these and other parts, nil for other subjects.
	whole *recording
}

// ownParts returns these parts of a subject.
func ownParts(what source.Subject) (parts own) {
	add := func(subjects ...source.Subject) {
		for _, s := range subjects {
			switch s := s.(type) {
			case *oncpu.Subject:
				parts.cpu = s
			case *offcpu.Subject:
				parts.waits = s
			}
		}
	}
	switch what := what.(type) {
	case untimed:
		return ownParts(what.Subject)
	case streamed:
		return ownParts(what.Subject)
	case *wall:
		add(what.joint...)
	case *recording:
		parts.whole = what
		add(what.joint...)
	default:
		add(what)
	}
	return parts
}

// prepareOwn checks whether a subject is code of the user's own processes, or waits of theirs, which can be measured without BPF
// programs. way is how, for messages.
func (o *Options) prepareOwn(what source.Subject, way string) (own, error) {
	parts := ownParts(what)
	_, streams := what.(streamed)
	switch {
	case parts.cpu == nil && parts.waits == nil:
		return parts, usage.Errorf("%s measure only CPU time and waits", way)
	case streams && parts.waits != nil:
		return parts, usage.Errorf("%s do not write waits while they go on", way)
	case o.Target.Scope == target.System || o.Target.Scope == target.Cgroup:
		return parts, usage.Errorf("%s measure only your own processes: choose some with %s, or give a command", way, usage.Process)
	case o.KernelOnly:
		return parts, usage.Errorf("%s do not measure the kernel without user code", way)
	case o.By == profile.GroupLabel:
		return parts, usage.Errorf("%s read no labels", way)
	case !slices.Contains([]string{"", "auto"}, o.Unwind) || o.Interpreters == interpretersOnly:
		return parts, usage.Errorf("%s walk stacks in one way: by unwind tables and frame pointers, without functions of interpreters", way)
	case o.Rules.Any():
		return parts, usage.Errorf("%s have no rules that include or exclude processes", way)
	case parts.whole != nil && (len(parts.whole.options.Events) > 0 || parts.whole.options.Locks):
		return parts, usage.Errorf("%s record neither events nor locks", way)
	}
	if err := o.prepareWaits(parts.waits, way); err != nil {
		return parts, err
	}
	return parts, prepareCPU(parts.cpu, way)
}

// prepareCPU checks whether running code can be sampled without BPF programs. m may be nil.
func prepareCPU(m *oncpu.Subject, way string) error {
	switch {
	case m == nil:
		return nil
	case m.Idle:
		return usage.Errorf("%s do not measure idle CPUs", way)
	case m.Parallelism:
		return usage.Errorf("%s do not see which threads run at the same time", way)
	case len(m.Specs) > 0 && m.Specs[0].ExcludeUser:
		return usage.Errorf("%s do not measure the kernel without user code", way)
	case len(m.Specs) > 1:
		// One kind of CPU alone would look like the whole program.
		return usage.Errorf("%s sample one event, but %s is a separate event on each kind of CPU here: choose cpu-clock", way, m.Specs[0].Name)
	}
	if len(m.Specs) == 0 {
		clock, err := perfevent.ParseEvent("cpu-clock")
		if err != nil {
			return err
		}
		m.Specs = []perfevent.Spec{clock}
	}
	return nil
}

// prepareWaits checks whether waits can be measured without BPF programs. m may be nil.
func (o *Options) prepareWaits(m *offcpu.Subject, way string) error {
	switch {
	case m == nil:
		return nil
	case m.RunQueue:
		return usage.Errorf("%s do not see when threads are woken", way)
	case m.WakerStacks:
		return usage.Errorf("%s do not see which thread wakes another", way)
	case m.Peers:
		return usage.Errorf("%s do not see the peers of sockets", way)
	case m.Threads == offcpu.KernelThreads:
		return usage.Errorf("%s do not measure kernel threads", way)
	case m.States != 0 && m.States != offcpu.AllStates:
		return usage.Errorf("%s do not see the states of all waits", way)
	case o.PerCPU:
		return usage.Errorf("%s do not tell the waits of CPUs apart", way)
	case o.Every > 0:
		return usage.Errorf("%s do not divide waits among windows", way)
	}
	return nil
}

// preparePerf checks whether perf events alone can measure a subject, by opening its event on this thread. The subject
// then has this event, for user code only.
func (o *Options) preparePerf(what source.Subject) error {
	parts, err := o.prepareOwn(what, "perf events alone")
	if err != nil {
		return err
	}
	m := parts.cpu
	switch {
	case m == nil:
		err = perfevent.Try(perfevent.Dummy)
	case perfevent.Try(m.Specs[0]) == nil:
	default:
		user := m.Specs[0]
		user.ExcludeKernel = true
		if err = perfevent.TryUser(user); err == nil {
			m.Specs[0] = user
		}
	}
	if err != nil {
		return doctor.Explain(err, "measuring your own processes by perf events alone")
	}
	if parts.whole != nil {
		parts.whole.keep(parts)
	}
	return nil
}

// prepareStops checks whether a subject can be sampled by stopping threads.
func (o *Options) prepareStops(what source.Subject) error {
	parts, err := o.prepareOwn(what, "stops (ptrace)")
	m := parts.cpu
	switch {
	case err != nil:
		return err
	case parts.waits != nil:
		return usage.Errorf("stops (ptrace) do not measure waits")
	case m.Specs[0].ExcludeKernel:
		return usage.Errorf("stops (ptrace) cannot tell time in the kernel apart: choose %s", m.Specs[0].Name)
	case !m.Specs[0].IsTime():
		return usage.Errorf("stops (ptrace) sample CPU time, not %s: choose cpu-clock", m.Specs[0].Name)
	case len(o.Target.CPUs) > 0:
		return usage.Errorf("stops (ptrace) cannot be limited to CPUs")
	}
	return o.checkStops()
}

// checkStops checks whether the target's threads may be stopped.
func (o *Options) checkStops() error {
	if err := tracing.Permitted(); err != nil {
		return fmt.Errorf("sampling by stops needs ptrace, which a seccomp filter forbids here: %w", err)
	}
	return o.checkScope()
}

// checkScope checks whether Yama lets this process trace the target.
func (o *Options) checkScope() error {
	const remedy = "or run: sudo sysctl kernel.yama.ptrace_scope=0"
	switch scope := tracing.Scope(); {
	case scope == 0 || os.Geteuid() == 0 && scope < 3 || o.Target.Scope == target.Command && scope == 1:
		return nil
	case scope == 1:
		return fmt.Errorf("sampling running processes by stops needs sysctl kernel.yama.ptrace_scope=0, which is 1: give a command (-- COMMAND) instead, %s", remedy)
	case scope == 2:
		return fmt.Errorf("sampling by stops needs sysctl kernel.yama.ptrace_scope below 2, which is 2: %s", strings.TrimPrefix(remedy, "or "))
	}
	return errors.New("sampling by stops needs sysctl kernel.yama.ptrace_scope below 2; it is 3, which forbids ptrace until the next boot")
}

// loadPerf opens the perf events of the subject. They also report mappings, forks, execs and, for waits, the switches of the
// measured processes.
func (r *run) loadPerf() error {
	o, parts := r.options, ownParts(r.subject)
	options, err := r.walking()
	if err != nil {
		return err
	}
	if m := parts.waits; m != nil {
		options.Waits = &perfring.WaitOptions{
			Alone: parts.cpu == nil, Shortest: m.Shortest, Longest: m.Longest, FromStart: o.Target.Scope == target.Command && o.Delay == 0,
		}
		if parts.cpu != nil {
			options.Waits.Index = 1
		}
	}
	s, err := perfring.Open(options)
	if err != nil {
		return err
	}
	o.warn(parts.method())
	return r.listenTo(s)
}

// method says how perf events alone measure the parts.
func (p own) method() string {
	const needs = "BPF programs need CAP_BPF and CAP_PERFMON"
	switch {
	case p.cpu == nil:
		return "measures waits by perf events: for their stacks in the kernel, and those of short ones, " + needs
	case p.whole != nil && p.waits != nil:
		return "records code and waits, but no " + leftOutParts + ", by perf events: for these and the kernel's code, " + needs
	case p.whole != nil:
		return "records code, but no " + leftOutParts + ", by perf events: for these and the kernel's code, " + needs
	case p.waits != nil:
		return "samples code and measures waits by perf events: for the kernel's code, " + needs
	case p.cpu.Specs[0].ExcludeKernel:
		return "samples user code only, by perf events: for kernel code, " + needs
	}
	return "samples by perf events, without CAP_BPF"
}

// leftOutParts are the parts of a recording that need BPF programs.
const leftOutParts = "disk requests and page faults"

// loadStops prepares to sample by stopping threads.
func (r *run) loadStops() error {
	o := r.options
	options, err := r.walking()
	if err != nil {
		return err
	}
	var interpreters *stopping.Interpreters
	if o.Interpreters != interpretersOff {
		interpreters = &stopping.Interpreters{}
		r.unwinder.Runtimes = known.NewTracker(interpreters)
		options.Runtimes = r.unwinder.Runtimes
	}
	r.stops, err = stopping.New(stopping.Options{Target: o.Target, Period: ownParts(r.subject).between(), Interpreters: interpreters})
	if err != nil {
		return fmt.Errorf("sample by stops (ptrace), without CAP_BPF and CAP_PERFMON: %w", err)
	}
	o.warn("samples by stopping threads for moments (ptrace): time in the kernel counts at the system call")
	return r.listenTo(perfring.New(options, r.stops))
}

// walking returns the options of a source that walks copies of stacks.
func (r *run) walking() (perfring.Options, error) {
	o, m := r.options, ownParts(r.subject).cpu
	event, frequency, period := perfevent.Dummy, uint64(0), uint64(0)
	if m != nil {
		event, frequency, period = m.Specs[0], m.Frequency, m.Period
	}
	times, err := r.startRecorder()
	_, stream := r.subject.(streamed)
	return perfring.Options{
		Spec: event, Frequency: frequency, Period: period, UserOnly: o.UserOnly,
		Target: o.Target, MaxDepth: o.MaxDepth, ByThread: o.PerThread, ByCPU: o.PerCPU, Timeline: times || stream,
		Finder: r.finder.Local(), TableBytes: o.UnwindMemory,
	}, err
}

// listenTo makes s the source of the run, whose records show mappings, forks and execs.
func (r *run) listenTo(s *perfring.Source) error {
	pids, err := s.Targets()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	r.tracker.ListenTo(s, pids)
	s.Track(r.tracker.Processes)
	r.tracker.Processes.OnMapped(r.noteMapped)
	var files []*process.File
	for _, pid := range pids {
		files = append(files, process.Files(r.tracker.Processes.Mappings(pid))...)
		if r.options.Target.Scope == target.Command {
			files = append(files, unwinding.Libraries(r.tracker.Processes, pid)...)
		}
	}
	s.Prepare(files)
	var shown []string
	if r.unwinder.Runtimes != nil {
		shown = readByStops
	}
	r.walked, r.hosted = s, hosted(shown)
	parts := ownParts(r.subject)
	if parts.cpu != nil {
		r.sources = append(r.sources, s)
	}
	if parts.waits != nil {
		r.sources = append(r.sources, s.Waits())
	}
	return nil
}

// between returns the CPU time between two samples, 0 if there are none.
func (p own) between() time.Duration {
	if p.cpu == nil {
		return 0
	}
	return p.cpu.Between()
}

// readByStops are the languages whose functions a stop reads.
var readByStops = []string{known.Name(bpf.RuntimePython), known.Name(bpf.RuntimeRuby)}

// showsFunctions returns what shows the functions of a language that the run does not show, "" if nothing does.
func (r *run) showsFunctions(language string) string {
	o := r.options
	if o.Via == viaPerf && slices.Contains(readByStops, language) && o.Interpreters != interpretersOff && o.checkStops() == nil {
		return "use --via ptrace"
	}
	return ""
}

// hosted returns a function that returns the language whose runtime is in a file, or otherwise in a process that has run such
// a file. It returns "" for shown languages: those with functions in the stacks.
func hosted(shown []string) func(pid int, f *process.File) string {
	files, processes := known.NewTracker(nil), map[int]string{}
	return func(pid int, f *process.File) string {
		if f == nil {
			return processes[pid]
		}
		language := files.Hosted(f)
		if slices.Contains(shown, language) {
			return ""
		}
		if language != "" {
			processes[pid] = language
		}
		return language
	}
}

// maxDepartures limits the processes that the summary names as no longer sampled.
const maxDepartures = 3

// unmeasured returns what perf events alone, or stops, could not see so far, in lines of text, nil for BPF programs. Threads and
// processes that are missing come first: a short summary has only one line. The amounts of CPU time are those of the whole run.
func (r *run) unmeasured(amounts bool) (lines []string) {
	if r.walked == nil {
		return nil
	}
	u, parts := r.walked.Unmeasured(), ownParts(r.subject)
	if r.stops != nil {
		return stopLines(u, r.stops.Stats(), amounts, parts.between())
	}
	if u.Without > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d threads were not measured: each takes an open file for each CPU, and fulgur opens up to %d of them: raise the limit with ulimit -n", u.Without, u.Threads, u.Limit))
	}
	if n := len(u.Refused); n > 0 {
		lines = append(lines, fmt.Sprintf("%s with other privileges could not be measured, first process %d", plain.Count(uint64(n), "child process"), u.Refused[0]))
	}
	for _, d := range u.Departures[:min(len(u.Departures), maxDepartures)] {
		lines = append(lines, fmt.Sprintf("process %d and its children were not sampled from %.2f s on: it ran %s, which has other privileges, or is not readable", d.PID, d.After.Seconds(), plain.Terminal(d.Comm)))
	}
	if more := int(u.Departed) - maxDepartures; more > 0 {
		lines = append(lines, fmt.Sprintf("other processes that ran such programs: %d", more))
	}
	if parts.cpu != nil {
		lines = append(lines, leftOut(u, amounts, parts.between()))
	}
	if parts.waits != nil {
		lines = append(lines, unseenWaits(r.walked.WaitStats(), amounts))
	}
	if parts.whole != nil {
		lines = append(lines, "without CAP_BPF: no "+leftOutParts)
	}
	return lines
}

// unseenWaits says how waits were measured, and which part of their time lacks stacks, if amounts are wanted.
func unseenWaits(w perfring.WaitStats, amounts bool) string {
	line := "without CAP_BPF: waits by perf events, with the stacks of those long enough to look at"
	if !amounts {
		return line
	}
	var parts []string
	for _, part := range []struct {
		time  time.Duration
		where string
	}{
		{w.TooShort, "in waits too short to look"}, {w.Forbidden, "in waits whose stack is not readable"}, {w.Preempted, "of waiting for a CPU"},
	} {
		if part.time >= shownUnsampled {
			parts = append(parts, fmt.Sprintf("%.2f s %s", part.time.Seconds(), part.where))
		}
	}
	if len(parts) == 0 {
		return line
	}
	return fmt.Sprintf("%s; of %.2f s, %s have none", line, w.Time.Seconds(), strings.Join(parts, " and "))
}

// shownUnsampled is the least CPU time that is worth mentioning.
const shownUnsampled = 5 * time.Millisecond

// leftOut says how the target was measured, and how much of its CPU time was not sampled, if amounts are wanted. between is
// the time between two samples.
func leftOut(u perfring.Unmeasured, amounts bool, between time.Duration) string {
	line, where := "without CAP_BPF: by perf events", ""
	if u.UserCode {
		line, where = "without CAP_BPF: user code only", "in the kernel"
	}
	// Each of the threads that ended without a sample may have run nearly as long as that.
	if 4*time.Duration(u.Brief)*between > u.Unsampled {
		brief := fmt.Sprintf("in %s that ended before the first sample", plain.Count(u.Brief, "thread"))
		where = strings.TrimPrefix(where+" or "+brief, " or ")
	}
	if !amounts || u.Unsampled < shownUnsampled || where == "" {
		return line
	}
	return fmt.Sprintf("%s; %.2f s of %.2f s of CPU time, %s, was not sampled", line, u.Unsampled.Seconds(), u.CPUTime.Seconds(), where)
}
