package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes/known"
)

// Values of [Options.Via] that demand one way.
const (
	viaBPF  = "bpf"
	viaPerf = "perf"
)

// chooseVia decides how to sample: by BPF programs if fulgur may load them, and otherwise by perf events alone if they
// can sample the subject.
func (o *Options) chooseVia(what source.Subject) error {
	if o.Via == viaPerf {
		return o.preparePerf(what)
	}
	err := doctor.CheckPrivileges(what.Command(), o.Stderr, o.Quiet)
	var lacking *doctor.Error
	if err == nil || o.Via == viaBPF || !errors.As(err, &lacking) || o.preparePerf(what) != nil {
		return err
	}
	o.Via = viaPerf
	return nil
}

// preparePerf checks whether perf events alone can sample a subject, by opening its event on this thread. The subject
// then has this event, for user code only.
func (o *Options) preparePerf(what source.Subject) error {
	m := onCPU(what)
	switch {
	case m == nil || m.Idle:
		return usage.Errorf("perf events alone measure neither off-CPU time nor idle CPUs")
	case o.Target.Scope == target.System || o.Target.Scope == target.Cgroup:
		return usage.Errorf("perf events alone measure only your own processes: choose some with %s, or give a command", usage.Process)
	case o.KernelOnly || len(m.Specs) > 0 && m.Specs[0].ExcludeUser:
		return usage.Errorf("perf events alone do not measure the kernel without user code")
	case o.By == profile.GroupLabel:
		return usage.Errorf("perf events alone read no labels")
	case !slices.Contains([]string{"", "auto"}, o.Unwind) || o.Interpreters == interpretersOnly:
		return usage.Errorf("perf events alone walk stacks in one way: by unwind tables and frame pointers, without functions of interpreters")
	case o.Rules.Any():
		return usage.Errorf("perf events alone have no rules that include or exclude processes")
	case len(m.Specs) > 1:
		// One kind of CPU alone would look like the whole program.
		return usage.Errorf("perf events alone sample one event, but %s is a separate event on each kind of CPU here: choose cpu-clock", m.Specs[0].Name)
	}
	if len(m.Specs) == 0 {
		clock, err := perfevent.ParseEvent("cpu-clock")
		if err != nil {
			return err
		}
		m.Specs = []perfevent.Spec{clock}
	}
	if perfevent.Try(m.Specs[0]) == nil {
		return nil
	}
	m.Specs[0].ExcludeKernel = true
	if err := perfevent.TryUser(m.Specs[0]); err != nil {
		return doctor.Explain(err, "sampling your own processes by perf events alone")
	}
	return nil
}

// onCPU returns the subject of samples of running code, nil for other subjects.
func onCPU(what source.Subject) *oncpu.Subject {
	switch what := what.(type) {
	case *oncpu.Subject:
		return what
	case untimed:
		return onCPU(what.Subject)
	case streamed:
		return onCPU(what.Subject)
	}
	return nil
}

// loadPerf opens the perf events of the subject. They also report mappings, forks and execs of the sampled processes.
func (r *run) loadPerf() error {
	o, m := r.options, onCPU(r.subject)
	times, err := r.startRecorder()
	if err != nil {
		return err
	}
	_, stream := r.subject.(streamed)
	s, err := perfring.Open(perfring.Options{
		Spec: m.Specs[0], Frequency: m.Frequency, Period: m.Period, UserOnly: o.UserOnly,
		Target: o.Target, MaxDepth: o.MaxDepth, ByThread: o.PerThread, ByCPU: o.PerCPU, Timeline: times || stream,
		Finder: r.finder.Local(), TableBytes: o.UnwindMemory,
	})
	if err != nil {
		return err
	}
	if m.Specs[0].ExcludeKernel {
		o.warn("samples user code only, by perf events: for kernel code, BPF programs need CAP_BPF and CAP_PERFMON")
	} else {
		o.warn("samples by perf events, without CAP_BPF")
	}
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
		if o.Target.Scope == target.Command {
			files = append(files, unwinding.Libraries(r.tracker.Processes, pid)...)
		}
	}
	s.Prepare(files)
	r.sources, r.hosted = []source.Source{s}, hosted()
	return nil
}

// hosted returns a function that returns the language whose runtime is in a file, or otherwise in a process that has run such
// a file.
func hosted() func(pid int, f *process.File) string {
	files, processes := known.NewTracker(nil), map[int]string{}
	return func(pid int, f *process.File) string {
		if f == nil {
			return processes[pid]
		}
		language := files.Hosted(f)
		if language != "" {
			processes[pid] = language
		}
		return language
	}
}

// maxDepartures limits the processes that the summary names as no longer sampled.
const maxDepartures = 3

// unmeasured returns what perf events alone could not see so far, in lines of text, nil for BPF programs. The amounts of
// CPU time are those of the whole run.
func (r *run) unmeasured(amounts bool) (lines []string) {
	_ = source.Each(r.sources, func(s *perfring.Source) error {
		u := s.Unmeasured()
		lines = append(lines, leftOut(u, amounts, onCPU(r.subject).Between()))
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
		return nil
	})
	return lines
}

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
	const shown = 5 * time.Millisecond
	if !amounts || u.Unsampled < shown || where == "" {
		return line
	}
	return fmt.Sprintf("%s; %.2f s of %.2f s of CPU time, %s, was not sampled", line, u.Unsampled.Seconds(), u.CPUTime.Seconds(), where)
}
