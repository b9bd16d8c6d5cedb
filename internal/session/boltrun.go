package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"fulgur/internal/encode/plain"
	"fulgur/internal/monotonic"
	"fulgur/internal/perfevent"
	"fulgur/internal/source/branch"
	"fulgur/internal/target"
)

// boltRun is a profile of branches being taken.
type boltRun struct {
	options  *BoltOptions
	recorder recorder
	binaries *binaries
	spaces   spaces
	turnedTo []string // programs that the target executed
	witness
	loop
}

// attachBranches opens everything, with sampling not yet enabled. The sideband
// comes before the recorder, so that no mapping is missed.
func attachBranches(o *BoltOptions, recorder recorder, bs *binaries) (_ *boltRun, err error) {
	r := &boltRun{options: o, recorder: recorder, binaries: bs}
	r.loop = loop{target: o.Target, rest: pollAtMost}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	_, slow := recorder.(*stepped)
	r.end(slow)
	r.heed = func(record perfevent.Record) {
		r.spaces.heed(record)
		r.noteExec(record)
	}
	if err := r.listen(o.Target.PIDs); err != nil {
		return nil, err
	}
	r.spaces.processes, r.spaces.binaries = r.processes, bs
	return r, recorder.attach(r)
}

// noteExec takes note of the programs that the named processes, or the command,
// turn to.
func (r *boltRun) noteExec(record perfevent.Record) {
	comm, ok := record.(perfevent.Comm)
	if !ok || !comm.Exec || !slices.Contains(r.target.PIDs, comm.PID) {
		return
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", comm.PID))
	if err != nil {
		name = comm.Comm // gone meanwhile
	}
	if len(r.turnedTo) < maxBinaries && !slices.Contains(r.turnedTo, name) {
		r.turnedTo = append(r.turnedTo, name)
	}
}

// end has the measurement end when it is asked to, or by default.
func (r *boltRun) end(stepped bool) {
	switch only := r.binaries.only; {
	case r.options.Duration > 0:
		r.limit = r.options.Duration
	case len(r.options.Command) > 0:
	case !stepped:
		r.limit = boltDuration
	default:
		r.limit = steppedAtMost
		r.enough = func() bool { return only != nil && only.Sufficiency() >= sufficient }
	}
	r.releaseFirst = stepped // who traces a command to hold it excludes others
}

func (r *boltRun) close() error {
	return errors.Join(r.recorder.close(), r.witness.close())
}

// sample collects until something ends it, stops sampling and takes all that
// is left.
func (r *boltRun) sample(ctx context.Context, launched *target.Launched) error {
	line := &progressLine{wanted: r.options.Progress, out: r.options.Stderr}
	err := errors.Join(r.measure(ctx, r, line, launched), r.recorder.disable())
	_, pollErr := r.poll()
	return errors.Join(err, pollErr, endCommand(ctx, launched))
}

func (r *boltRun) took() time.Duration     { return r.duration }
func (r *boltRun) enable() error           { return r.recorder.enable() }
func (r *boltRun) targets() ([]int, error) { return r.recorder.targets() }
func (r *boltRun) pollFDs() []int          { return append(r.sideband.FDs(), r.recorder.fds()...) }
func (r *boltRun) urgentFDs() []int        { return nil }

func (r *boltRun) followCPUs(online []int) error {
	return errors.Join(r.sideband.FollowCPUs(online), r.recorder.followCPUs(online))
}

func (r *boltRun) progress() (string, error) {
	counts := plain.Count(r.binaries.collector.Stats().Samples, "sample")
	if b := r.binaries.only; b != nil {
		counts += fmt.Sprintf(", %s taken branches for each byte of code", twoDigits(b.Sufficiency()))
		if left := timeLeft(b.Sufficiency(), time.Since(r.start)); left != "" {
			counts += ", enough in about " + left
		}
	}
	return r.describe(counts), nil
}

// poll takes what was recorded. The samples are marked before the sideband is
// drained, so that every sample meets the mappings of its time.
func (r *boltRun) poll() (busy bool, err error) {
	now := monotonic.Now()
	r.adapt(r.recorder.mark())
	r.busy = false
	r.drain()
	err = r.recorder.read(func(s branch.Sample) error {
		return r.binaries.collector.Add(r.spaces.layout(s), s.Entries)
	})
	if err != nil {
		return r.busy, err
	}
	r.processes.Forget(now - graceForStacks)
	r.spaces.forget(now - graceForStacks)
	return r.busy, errors.Join(r.recorder.tend(), r.sidebandErr)
}

// adapt chooses when to poll again: at the highest rate that kernels allow,
// 100 kHz, a ring fills within milliseconds.
func (r *boltRun) adapt(fill float64) {
	const least, most = pollAtMost / 16, pollAtMost
	switch {
	case fill > 0.25:
		r.rest = max(r.rest/2, least)
	case fill < 0.1:
		r.rest = min(r.rest*2, most)
	}
}

// describeTo adds to the report what the run knows beside the counts.
func (r *boltRun) describeTo(report *boltReport) error {
	if err := r.recorder.report(report); err != nil {
		return err
	}
	report.lost("records of what processes mapped", r.lost)
	report.lost("processes that were gone before their mappings could be read", r.processes.Gone()-r.spaces.past)
	if only := r.binaries.only; only != nil && only.Stats().Branches == 0 && len(r.turnedTo) > 0 {
		report.nothing = fmt.Sprintf("%s, but the target turned to %s: choose the program with --binary", plain.Terminal(only.Name), plain.Terminal(strings.Join(r.turnedTo, ", ")))
		report.warn("the profile is of %s", report.nothing)
		return nil
	}
	if report.Samples > 0 {
		return nil
	}
	switch {
	case r.missed:
		report.nothing = "the target ended before sampling began"
	case report.nothing == "":
		report.nothing = "the target did not run"
	}
	report.warn("nothing was sampled: %s", report.nothing)
	return nil
}
