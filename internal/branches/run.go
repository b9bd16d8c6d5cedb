package branches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
)

// branchRun is a measurement of branches. It implements [loop.Measurement] for its loop.
type branchRun struct {
	options  *Options
	recorder recorder
	binaries *binaries
	spaces   spaces
	loop     loop.Loop
	tracker  process.Tracker // of processes and their mappings
	executed []string        // programs that the target has executed
}

// attachBranches opens everything, with sampling not yet enabled. The sideband
// starts before the recorder, so that no mapping is missed.
func attachBranches(o *Options, recorder recorder, bs *binaries) (_ *branchRun, err error) {
	r := &branchRun{options: o, recorder: recorder, binaries: bs}
	r.loop = loop.Loop{Target: o.Target, Rest: loop.PollAtMost}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.tracker.HandleRecord = func(record perfevent.Record) {
		r.spaces.handleRecord(record)
		r.noteExec(record)
	}
	if err := r.tracker.Listen(o.Target.PIDs); err != nil {
		return nil, err
	}
	r.spaces.processes, r.spaces.binaries = r.tracker.Processes, bs
	err = recorder.attach(r)
	if errors.Is(err, jumps.ErrUnsupported) {
		if o.counts() {
			err = o.insteadOfCounting(err)
		} else {
			err = r.fallBack(err)
		}
	}
	r.end()
	return r, err
}

// fallBack replaces the recorder, which was chosen automatically, because it does not
// support the binary.
func (r *branchRun) fallBack(why error) error {
	next, err := r.options.withoutCounting(why, r.options.Stderr)
	if err != nil {
		return err
	}
	if err := r.recorder.close(); err != nil {
		return err
	}
	r.recorder = next
	return next.attach(r)
}

// noteExec notes the programs that the named processes, or the command, execute.
func (r *branchRun) noteExec(record perfevent.Record) {
	comm, ok := record.(perfevent.Comm)
	if !ok || !comm.Exec || !slices.Contains(r.loop.Target.PIDs, comm.PID) {
		return
	}
	name, err := procfs.Readlink(comm.PID, "exe")
	if err != nil {
		name = comm.Comm // the process has exited
	}
	if len(r.executed) < maxBinaries && !slices.Contains(r.executed, name) {
		r.executed = append(r.executed, name)
	}
}

// end sets when the measurement ends.
func (r *branchRun) end() {
	r.recorder.end(r)
	if r.options.Duration > 0 || len(r.options.Command) > 0 {
		r.loop.Limit, r.loop.Enough = r.options.Duration, nil
	}
}

func (r *branchRun) close() error {
	return errors.Join(r.recorder.close(), r.tracker.StopListening())
}

// sample measures until the end, stops sampling and reads the remaining samples.
func (r *branchRun) sample(ctx context.Context, launched *target.Launched) error {
	line := &loop.ProgressLine{Wanted: r.options.Progress, Out: r.options.Stderr}
	err := errors.Join(r.loop.Measure(ctx, r, line, launched), r.recorder.disable())
	_, pollErr := r.Poll()
	return errors.Join(err, pollErr, loop.EndCommand(ctx, launched))
}

func (r *branchRun) took() time.Duration     { return r.loop.Duration }
func (r *branchRun) Enable() error           { return r.recorder.enable() }
func (r *branchRun) Targets() ([]int, error) { return r.recorder.targets() }
func (r *branchRun) PollFDs() []int {
	return append(r.tracker.Sideband.FDs(), r.recorder.fds()...)
}
func (r *branchRun) UrgentFDs() []int { return nil }

func (r *branchRun) FollowCPUs(online []int) error {
	return errors.Join(r.tracker.Sideband.FollowCPUs(online), r.recorder.followCPUs(online))
}

func (r *branchRun) Progress() (string, error) {
	if counts := r.recorder.progress(); counts != "" {
		return r.loop.Describe(counts), nil
	}
	counts := plain.Count(r.binaries.collector.Stats().Samples, "sample")
	if b := r.binaries.only; b != nil {
		counts += fmt.Sprintf(", %s taken branches for each byte of code", twoDigits(b.Sufficiency()))
		if left := timeLeft(b.Sufficiency(), time.Since(r.loop.Start)); left != "" {
			counts += ", sufficient in about " + left
		}
	}
	return r.loop.Describe(counts), nil
}

// Poll reads the recorded samples. It marks the samples before it drains the
// sideband, so that every sample meets the mappings of its time.
func (r *branchRun) Poll() (busy bool, err error) {
	now := monotonic.Now()
	r.adapt(r.recorder.mark())
	r.tracker.Busy = false
	r.tracker.Drain()
	err = r.recorder.read(func(s bolt.Sample) error {
		return r.binaries.collector.Add(r.spaces.layout(s), s.Entries)
	})
	if err != nil {
		return r.tracker.Busy, err
	}
	r.tracker.Processes.Forget(now - loop.GraceForStacks)
	r.spaces.forget(now - loop.GraceForStacks)
	return r.tracker.Busy, errors.Join(r.recorder.tend(), r.tracker.DrainErr)
}

// adapt chooses the time of the next poll: at the highest rate that kernels allow,
// 100 kHz, a ring fills within milliseconds.
func (r *branchRun) adapt(fill float64) {
	const shortest, longest = loop.PollAtMost / 16, loop.PollAtMost
	switch {
	case fill > 0.25:
		r.loop.Rest = max(r.loop.Rest/2, shortest)
	case fill < 0.1:
		r.loop.Rest = min(r.loop.Rest*2, longest)
	}
}

// describeTo adds the run's own data to the report.
func (r *branchRun) describeTo(report *report) error {
	if err := r.recorder.report(report); err != nil {
		return err
	}
	report.lostMappings(r.tracker.Lost)
	for _, s := range r.tracker.Processes.Storms() {
		report.warn("%s; some of its branches may be missing", s)
	}
	report.losses(profile.Losses{profile.LossProcessesGone: r.tracker.Processes.Gone() - r.spaces.past})
	if only := r.binaries.only; only != nil && only.Stats().Branches == 0 && len(r.executed) > 0 {
		report.nothing = fmt.Sprintf("%s, but the target executed %s: choose the program with %s", plain.Terminal(only.Name), plain.Terminal(strings.Join(r.executed, ", ")), usage.Binary)
		report.warn("the profile is of %s", report.nothing)
		return nil
	}
	if report.Samples > 0 {
		return nil
	}
	switch {
	case r.loop.Missed:
		report.nothing = "the target exited before sampling began"
	case report.nothing == "":
		report.nothing = "the target did not run"
	}
	report.warn("nothing was sampled: %s", report.nothing)
	return nil
}
