package branches

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/hardware"
	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// recorder records branches, with the CPU, by counting jumps or by stepping.
type recorder interface {
	fmt.Stringer // describes what it does
	// attach opens everything it needs. The tracker is already running.
	attach(r *branchRun) error
	// end sets when r ends by default.
	end(r *branchRun)
	enable() error
	// disable stops recording. Samples recorded so far can still be read.
	disable() error
	// targets returns the current processes of the target.
	targets() ([]int, error)
	// fds returns descriptors that request a poll by being readable.
	fds() []int
	followCPUs(online []int) error
	// mark notes the current end of the samples. It returns the fill level of
	// their buffer, from 0 to 1.
	mark() (fill float64)
	// read calls add with the samples up to the mark.
	read(add func(bolt.Sample) error) error
	// tend is called after each poll.
	tend() error
	// progress describes the state for a terminal; "" means by the number of samples.
	progress() string
	// report adds the recorder's own data.
	report(report *report) error
	close() error
}

// Values of [Options.Branches].
const (
	branchesAuto        = "auto"
	branchesHardware    = "hardware"
	branchesCounting    = "counting"
	branchesBreakpoints = "breakpoints"
	branchesStepping    = "stepping"
)

// ErrNoHardware means that the CPU cannot record branches, or not with this kernel or hypervisor.
var ErrNoHardware = hardware.ErrNone

// chooseRecorder returns a recorder for o on this machine. It needs privileges.
func (o *Options) chooseRecorder(stderr io.Writer) (recorder, error) {
	switch o.Branches {
	case branchesStepping:
		return newStepped(o), nil
	case branchesCounting, branchesBreakpoints:
		c := newCounted(o, map[string]jumps.Probes{branchesCounting: jumps.Uprobes, branchesBreakpoints: jumps.Breakpoints}[o.Branches])
		if err := jumps.Check(c.options.Probes); err != nil {
			return nil, o.insteadOfCounting(err)
		}
		return c, nil
	}
	event, err := o.event()
	if err == nil {
		return &recorded{event: event}, nil
	}
	if !errors.Is(err, ErrNoHardware) || o.Branches == branchesHardware || o.Kernel {
		return nil, err // only hardware records branches in the kernel
	}
	if option, ok := o.forHardware(); ok {
		return nil, fmt.Errorf("%w; or replace %s by %s (see fulgur help bolt)", err, option, waysWithoutHardware())
	}
	if why := o.canCount(); why != nil {
		return o.withoutCounting(fmt.Errorf("%w; %w", err, why), stderr)
	}
	c := newCounted(o, jumps.Any)
	branches := branchesCounting
	if why := jumps.Check(jumps.Uprobes); why != nil {
		c.options.Probes, branches = jumps.Breakpoints, branchesBreakpoints
		if !o.Quiet {
			fmt.Fprintf(stderr, "fulgur: no uprobes: %s\n", plain.Error(why))
		}
	}
	if !o.Quiet {
		fmt.Fprintf(stderr, "fulgur: no branch recording hardware: %s (%s %s, %s)\n", c, usage.Branches, branches, usage.MaxOverhead)
	}
	return c, nil
}

// waysWithoutHardware lists the ways to record branches that work on this machine without hardware.
func waysWithoutHardware() string {
	ways := []string{branchesStepping + ", which single-steps the target's threads for a few milliseconds at a time"}
	if jumps.Check(jumps.Breakpoints) == nil {
		ways = append([]string{branchesBreakpoints + ", which counts jumps with hardware breakpoints"}, ways...)
	}
	if jumps.Check(jumps.Uprobes) == nil {
		ways = append([]string{branchesCounting + ", which counts jumps with uprobes"}, ways...)
	}
	return fmt.Sprintf("%s %s", usage.Branches, strings.Join(ways, ", or "))
}

// insteadOfCounting adds to the error why jumps cannot be counted what can be done instead.
func (o *Options) insteadOfCounting(why error) error {
	instead := branchesStepping
	switch {
	case o.Branches == branchesCounting && jumps.Check(jumps.Breakpoints) == nil:
		instead = branchesBreakpoints
	case o.Branches == branchesBreakpoints && jumps.Check(jumps.Uprobes) == nil:
		instead = branchesCounting + " or " + branchesStepping
	}
	return fmt.Errorf("%w; or use %s %s", why, usage.Branches, instead)
}

// withoutCounting returns the recorder for o if there is no hardware and counting is not
// possible either; why is the reason.
func (o *Options) withoutCounting(why error, stderr io.Writer) (recorder, error) {
	if o.unattended {
		return nil, why
	}
	if len(o.Command) == 0 {
		return nil, fmt.Errorf("%w; or add %s %s, which single-steps the target's threads for a few milliseconds at a time (see fulgur help bolt)", why, usage.Branches, branchesStepping)
	}
	// Losses were reported before.
	if err := doctor.CheckPrivileges(doctor.BoltStepping, stderr, true); err != nil {
		return nil, err
	}
	s := newStepped(o)
	if !o.Quiet {
		fmt.Fprintf(stderr, "fulgur: %s\n", plain.Error(why))
		fmt.Fprintf(stderr, "fulgur: no branch recording hardware: single-stepping the command in bursts, which slow it down by at most %s (%s %s, %s)\n", s.overhead(), usage.Branches, branchesStepping, usage.MaxOverhead)
	}
	return s, nil
}

// canCount returns why jumps cannot be counted, or nil.
func (o *Options) canCount() error {
	switch {
	case o.AllBinaries:
		return fmt.Errorf("%w: that is for one binary, chosen with %s", jumps.ErrUnsupported, usage.Binary)
	case o.BurstMax != 0:
		return fmt.Errorf("%w: %s is for stepping", jumps.ErrUnsupported, usage.Burst)
	}
	if err := jumps.Check(jumps.Uprobes); err != nil && jumps.Check(jumps.Breakpoints) != nil {
		return err
	}
	return nil
}

// forHardware returns an option of o that only hardware supports, and whether there is
// one.
func (o *Options) forHardware() (usage.Option, bool) {
	switch {
	case o.Event != "":
		return usage.Event, true
	case o.Frequency != 0:
		return usage.Frequency, true
	case o.RingSize != 0:
		return usage.RingSize, true
	}
	return "", false
}

// event returns the event to sample.
func (o *Options) event() (hardware.Event, error) {
	limit, err := perfevent.MaxSampleRate()
	if err != nil {
		return hardware.Event{}, err
	}
	frequency := o.Frequency
	switch {
	case frequency != 0:
	case o.unattended:
		frequency = min(collectFrequency, limit)
	default:
		frequency = limit
	}
	if frequency > limit {
		return hardware.Event{}, usage.Errorf("frequency %d Hz is above the kernel's limit of %d Hz; lower it, or raise sysctl kernel.perf_event_max_sample_rate", frequency, limit)
	}
	if o.Event == "" {
		return hardware.Choose(frequency, o.Kernel)
	}
	if _, err := perfevent.ParseEvent(o.Event); err != nil {
		return hardware.Event{}, usage.Errorf("%v", err)
	}
	return hardware.Named(o.Event, sampling.Rate{Frequency: frequency}, o.Kernel)
}

// recorded records with the CPU.
type recorded struct {
	event  hardware.Event
	source *hardware.Source
}

func (h *recorded) String() string {
	return fmt.Sprintf("sampling the branches of %s, %s", h.event.Specs[0].Name, h.event.Rate)
}

func (h *recorded) attach(r *branchRun) error {
	cgroup, err := target.OpenCgroup(r.options.Target)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	h.source, err = hardware.Load(hardware.Options{
		Scope: r.options.Target.Scope, Cgroup: cgroup.FD, Kernel: r.options.Kernel, RingSize: r.options.RingSize,
	})
	if err != nil {
		return fmt.Errorf("load the branch program: %w", err)
	}
	return h.source.Attach(r.options.Target, h.event)
}

func (h *recorded) end(r *branchRun)                       { r.loop.Limit = defaultDuration }
func (h *recorded) enable() error                          { return h.source.Enable() }
func (h *recorded) disable() error                         { return h.source.Disable() }
func (h *recorded) targets() ([]int, error)                { return h.source.Targets() }
func (h *recorded) fds() []int                             { return h.source.FDs() }
func (h *recorded) followCPUs(online []int) error          { return h.source.FollowCPUs(online) }
func (h *recorded) mark() (fill float64)                   { return h.source.Mark() }
func (h *recorded) read(add func(bolt.Sample) error) error { return h.source.Read(add) }
func (h *recorded) progress() string                       { return "" }
func (h *recorded) tend() error                            { return h.source.CheckThrottling() }

func (h *recorded) close() error {
	if h.source == nil {
		return nil
	}
	return h.source.Close()
}

func (h *recorded) report(report *report) error {
	kernel, err := h.source.Stats()
	if err != nil {
		return err
	}
	report.losses(profile.Losses{
		profile.LossUnsent: kernel.Lost, profile.LossSkipped: kernel.Skipped,
		profile.LossThrottled: kernel.Throttled, profile.LossUntracked: kernel.Untracked,
	})
	report.leftOut("samples without branch records", kernel.Empty)
	if report.Samples == 0 && kernel.Empty > 0 {
		report.nothing = "no sample has branch records: this hardware may not record them for " + h.event.Specs[0].Name + "; choose another event with " + usage.Event.String()
	}
	return nil
}
