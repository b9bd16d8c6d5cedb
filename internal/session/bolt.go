package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/perfevent"
	"fulgur/internal/privilege"
	"fulgur/internal/source/branch"
	"fulgur/internal/source/sampling"
	"fulgur/internal/target"
)

// BoltOptions describe one profile for llvm-bolt.
type BoltOptions struct {
	// Target is what to measure. With Command it is filled in from the
	// process that is launched.
	Target target.Target
	// Command, if not empty, is launched stopped, sampled from its first
	// instruction, and its exit ends the profile.
	Command []string
	// Binary is the path of the file to profile; empty for the program that
	// the target's processes run. AllBinaries takes the profiles of all files
	// that they map, into the directory Output.
	Binary      string
	AllBinaries bool

	// Event names the sampled event; empty chooses the best that there is.
	Event string
	// Frequency is in samples a second for each CPU; 0 stands for as many as
	// the kernel allows.
	Frequency uint64
	// Duration is how long to sample; 0 means until the context is cancelled
	// or the target exits.
	Duration time.Duration

	// LLVM is the version that the profile is for: "16", "22", or "auto" or
	// empty for that of the llvm-bolt in PATH.
	LLVM string
	// Strict leaves out fall-throughs across entries of the kernel, which
	// perf2bolt makes up.
	Strict bool

	// RingSize is the size in bytes of each CPU's ring; 0 takes the default.
	RingSize uint32

	// Output is the file to write, "-" or empty for Stdout; with AllBinaries
	// a directory.
	Output string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// StatsJSON writes the summary as JSON, Quiet leaves it out, Verbose tells
	// what is about to be done; Progress shows a progress line on Stderr.
	StatsJSON, Quiet, Verbose, Progress bool
}

// Bolt samples branch records and writes profiles in the pre-aggregated format
// of perf2bolt. It ends, and the exit code is, as those of [Profile].
func Bolt(ctx context.Context, o BoltOptions) (exitCode int, err error) {
	debug.SetGCPercent(gcPercent)
	if err := o.complete(); err != nil {
		return 2, err
	}
	l, err := chooseLLVM(ctx, o.LLVM)
	if errors.Is(err, ErrUsage) {
		return 2, err
	}
	if err != nil {
		return 1, err
	}
	if err := checkPrivileges(o.Stderr, o.Quiet); err != nil {
		return 1, err
	}
	if err := target.Check(o.Target); err != nil {
		return 1, err
	}
	event, err := o.event()
	if errors.Is(err, ErrUsage) {
		return 2, err
	}
	if err != nil {
		return 1, privilege.Explain(err, "sample branches")
	}
	out, err := openPreagg(l, false, o.AllBinaries, o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.abort()) }()

	launched, err := launch(o.Command, &o.Target)
	if err != nil {
		return 1, err
	}
	err = takeBranches(ctx, &o, event, launched, out)
	switch {
	case launched != nil:
		return await(ctx, launched, err, o.Stderr, o.Quiet)
	case errors.Is(err, ErrUsage):
		return 2, err
	case err != nil:
		return 1, err
	}
	return 0, nil
}

// complete checks o and fills in defaults.
func (o *BoltOptions) complete() error {
	limit, err := perfevent.MaxSampleRate()
	if err != nil {
		return err
	}
	if o.Frequency == 0 {
		o.Frequency = limit
	}
	switch {
	case o.Frequency > limit:
		return usagef("frequency %d Hz is above the %d Hz that the kernel allows; lower it, or raise sysctl kernel.perf_event_max_sample_rate", o.Frequency, limit)
	case o.AllBinaries && o.Binary != "":
		return usagef("one binary and all of them exclude each other")
	case o.AllBinaries && (o.Output == "" || o.Output == "-"):
		return usagef("the profiles of all binaries need a directory to go to: -o DIR")
	case !o.AllBinaries && o.Binary == "" && len(o.Target.PIDs) == 0 && len(o.Command) == 0:
		return usagef("which binary to profile? -p PID for the program of a process, --binary FILE, or --all-binaries")
	}
	return nil
}

// event returns what to sample. Finding out takes privileges.
func (o *BoltOptions) event() (branch.Event, error) {
	if o.Event == "" {
		return branch.Choose(o.Frequency)
	}
	if _, err := perfevent.ParseEvent(o.Event); err != nil {
		return branch.Event{}, usagef("%v", err)
	}
	return branch.Named(o.Event, sampling.Rate{Frequency: o.Frequency})
}

// takeBranches measures, writes the profile and sums it up.
func takeBranches(ctx context.Context, o *BoltOptions, event branch.Event, launched *target.Launched, out *preaggWriter) (err error) {
	r, err := attachBranches(o, event)
	if err != nil {
		return privilege.Explain(err, "sample the branches of "+o.Target.String())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.sample(ctx, launched); err != nil {
		return err
	}
	out.open = r.binaries.open
	// What ended the measurement does not end the writing.
	paths, err := out.write(context.WithoutCancel(ctx), r.collector)
	if err != nil || o.Quiet {
		return err
	}
	report, err := r.report(out, paths)
	if err != nil {
		return err
	}
	return report.write(o.Stderr, o.StatsJSON)
}

// boltRun is a profile for llvm-bolt being taken.
type boltRun struct {
	options   *BoltOptions
	event     branch.Event
	source    *branch.Source
	collector *bolt.Collector
	binaries  binaries
	spaces    spaces
	witness
	loop
}

// attachBranches loads the kernel side and opens everything, with sampling not
// yet enabled. The sideband comes before the events, so that no mapping is
// missed.
func attachBranches(o *BoltOptions, event branch.Event) (_ *boltRun, err error) {
	r := &boltRun{options: o, event: event, loop: loop{target: o.Target, limit: o.Duration, rest: pollAtMost}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.collector = bolt.NewCollector(bolt.Options{Strict: o.Strict})
	r.binaries.collector = r.collector
	if !o.AllBinaries {
		if err := r.binaries.choose(o.Binary, o.Target.PIDs); err != nil {
			return nil, err
		}
	}
	cgroup, err := openCgroup(o.Target)
	if err != nil {
		return nil, err
	}
	defer cgroup.close()
	r.source, err = branch.Load(branch.Options{Scope: o.Target.Scope, Cgroup: cgroup.fd, RingSize: o.RingSize})
	if err != nil {
		return nil, fmt.Errorf("load the branch program: %w", err)
	}
	r.heed = r.spaces.heed
	if err := r.listen(o.Target.PIDs); err != nil {
		return nil, err
	}
	r.spaces.processes, r.spaces.binaries = r.processes, &r.binaries
	if o.Verbose {
		fmt.Fprintf(o.Stderr, "fulgur: sampling %s of %s, %s\n", event.Specs[0].Name, o.Target, event.Rate)
	}
	return r, r.source.Attach(o.Target, event)
}

func (r *boltRun) close() error {
	err := r.witness.close()
	if r.source != nil {
		err = errors.Join(err, r.source.Close())
	}
	r.collector.Close()
	return errors.Join(err, r.binaries.close())
}

// sample collects until something ends it, stops sampling and takes all that
// is left.
func (r *boltRun) sample(ctx context.Context, launched *target.Launched) error {
	line := &progressLine{wanted: r.options.Progress, out: r.options.Stderr}
	err := errors.Join(r.measure(ctx, r, line, launched), r.source.Disable())
	_, pollErr := r.poll()
	return errors.Join(err, pollErr, endCommand(ctx, launched))
}

func (r *boltRun) enable() error           { return r.source.Enable() }
func (r *boltRun) targets() ([]int, error) { return r.source.Targets() }
func (r *boltRun) pollFDs() []int          { return append(r.sideband.FDs(), r.source.FDs()...) }

func (r *boltRun) followCPUs(online []int) error {
	return errors.Join(r.sideband.FollowCPUs(online), r.source.FollowCPUs(online))
}

func (r *boltRun) progress() (string, error) {
	counts := count(r.collector.Stats().Samples, "sample")
	if b := r.binaries.only; b != nil {
		counts += fmt.Sprintf(", %s taken branches for each byte of code", twoDigits(b.Sufficiency()))
	}
	return r.describe(counts), nil
}

// poll takes what the kernel side has for us. The rings' positions are noted
// before the sideband is drained, so that every sample meets the mappings of
// its time.
func (r *boltRun) poll() (busy bool, err error) {
	now := monotonic()
	r.adapt(r.source.Mark())
	r.busy = false
	r.drain()
	err = r.source.Read(func(s branch.Sample) error {
		return r.collector.Add(r.spaces.layout(s), s.Entries)
	})
	if err != nil {
		return r.busy, err
	}
	r.processes.Forget(now - graceForStacks)
	r.spaces.forget(now - graceForStacks)
	return r.busy, errors.Join(r.source.CheckThrottling(), r.sidebandErr)
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

// report sums up.
func (r *boltRun) report(w *preaggWriter, paths map[*bolt.Binary]string) (*boltReport, error) {
	kernel, err := r.source.Stats()
	if err != nil {
		return nil, err
	}
	report := newBoltReport(r.collector, w, paths)
	report.lost("samples that met a full ring (--ring-size raises it, -f lowers the rate)", kernel.Lost)
	report.lost("samples, of whatever process, that the kernel skipped", kernel.Skipped)
	report.lost("times that the kernel paused sampling, as it took too long (-f lowers the rate)", kernel.Throttled)
	report.lost("children that were too many to follow", kernel.Untracked)
	report.lost("records of what processes mapped", r.lost)
	report.lost("processes that were gone before their mappings could be read", r.processes.Gone())
	report.leftOut("samples without branch records", kernel.Empty)
	if report.Samples == 0 {
		report.warn("%s", r.whyNothing(kernel))
	}
	return report, nil
}

// whyNothing returns the likely cause of a profile without samples.
func (r *boltRun) whyNothing(kernel branch.Stats) string {
	switch {
	case r.missed:
		return "nothing was sampled: the target ended before sampling began"
	case kernel.Empty > 0:
		return "no sample came with branch records: this hardware may not record them for " + r.event.Specs[0].Name + "; choose another event with --event"
	}
	return "nothing was sampled: the target did not run"
}
