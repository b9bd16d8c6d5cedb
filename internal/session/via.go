package session

import (
	"errors"
	"fmt"
	"time"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
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
	_, stream := what.(streamed)
	switch {
	case stream:
		return usage.Errorf("perf events alone count samples; they cannot stream them")
	case m == nil || m.Idle:
		return usage.Errorf("perf events alone measure neither off-CPU time nor idle CPUs")
	case o.Target.Scope == target.System || o.Target.Scope == target.Cgroup:
		return usage.Errorf("perf events alone measure only your own processes: choose some with %s, or give a command", usage.Process)
	case o.KernelOnly:
		return usage.Errorf("perf events alone see no kernel code")
	case o.Times:
		return usage.Errorf("perf events alone record no times of samples")
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
	}
	return nil
}

// loadPerf opens the perf events of the subject. They also report mappings, forks and execs of the sampled processes.
func (r *run) loadPerf() error {
	o, m := r.options, onCPU(r.subject)
	s, err := perfring.Open(perfring.Options{
		Spec: m.Specs[0], Frequency: m.Frequency, Period: m.Period,
		Target: o.Target, MaxDepth: o.MaxDepth, ByThread: o.PerThread, ByCPU: o.PerCPU,
		Finder: r.finder.Local(), TableBytes: o.UnwindMemory,
	})
	if err != nil {
		return err
	}
	o.warn("samples user code only, by perf events: for kernel code, BPF programs need CAP_BPF and CAP_PERFMON")
	if _, ok := r.subject.Times(); ok && o.hasTimes() {
		o.warn("the output has no times of samples, since perf events alone record none")
	}
	r.tracker.ListenTo(s, o.Target.PIDs)
	s.Track(r.tracker.Processes)
	r.tracker.Processes.OnMapped(r.noteMapped)
	r.sources = []source.Source{s}
	return nil
}

// unsampledLines says how much of the target's CPU time could not be sampled.
func (r *run) unsampledLines() (lines []string) {
	_ = source.Each(r.sources, func(s interface {
		Unsampled() (all, unsampled time.Duration)
	}) error {
		if all, unsampled := s.Unsampled(); onCPU(r.subject).Specs[0].IsTime() && unsampled > 0 {
			lines = append(lines, fmt.Sprintf("user code only: %.2f s of %.2f s of CPU time was in the kernel, and not sampled", unsampled.Seconds(), all.Seconds()))
		}
		return nil
	})
	return lines
}
