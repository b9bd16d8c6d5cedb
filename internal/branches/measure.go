package branches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/stepping"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/output"
	"fulgur/internal/session"
)

// Options describe a profile for llvm-bolt.
type Options struct {
	// Target is the target. For Command, its process is added at launch.
	Target target.Target
	// Command, if not empty, is launched stopped and sampled from its first
	// instruction. The profile ends when it exits.
	Command []string
	ProfileOptions

	// Branches selects how to record branches: "hardware", "counting", "breakpoints",
	// "stepping", or "auto" or empty for the first of these that is available; stepping
	// only if there is a command.
	Branches string
	// Event names the sampled event; empty selects the best.
	Event string
	// Frequency is in samples per second and CPU; 0 means the maximum that the
	// kernel allows, or a default with Basic.
	Frequency uint64
	// MaxOverhead limits the slowdown by counting, or of a thread by stepping, as a
	// share of its own time. MaxStall limits the time that counting stalls a thread,
	// and BurstMax the time that stepping holds one. 0 means the default.
	MaxOverhead        float64
	MaxStall, BurstMax time.Duration
	// Duration is the time to measure. 0 means the default: until the command
	// exits; with counting or breakpoints, a minute; with stepping, until the profile is
	// sufficient, at most 5 minutes; otherwise 10 s, as in ebpf-bolt.
	Duration time.Duration

	// RingSize is the size of each CPU's ring in bytes; 0 means the default.
	RingSize uint32

	// Output is the file to write; "-" or empty means Stdout. With AllBinaries
	// it is a directory. With Optimize, empty means that the profile is not
	// kept.
	Output string
	// Optimize, if not empty, is the path for the binary that llvm-bolt
	// optimizes with the profile.
	Optimize string
	// Check is the time for running a command with the original and the optimized
	// program, to compare their CPU time; 0 leaves it out.
	Check time.Duration
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet suppresses the summary, Verbose describes the measurement at its
	// start, Progress shows a progress line on Stderr.
	Quiet, Verbose, Progress bool
	// Interruptible is as in [session.Options]. If nil, nothing ends waits for the
	// reader of the output and for llvm-bolt.
	Interruptible func(context.Context) (ctx context.Context, stop func())

	unattended bool // see [Collect]
}

// defaultDuration is the default duration, as in ebpf-bolt.
const defaultDuration = 10 * time.Second

// Measure samples branch records and writes profiles in the pre-aggregated format
// of perf2bolt. It ends as [session.Run] does, with the same exit codes.
func Measure(ctx context.Context, o Options) (exitCode int, err error) {
	return session.Driver{Command: o.Command, Target: &o.Target, Stderr: o.Stderr, Quiet: o.Quiet}.Run(ctx, &job{options: &o})
}

// command returns the doctor's command for o, as far as known before the machine is
// examined.
func (o *Options) command() doctor.Command {
	switch o.Branches {
	case branchesStepping:
		return doctor.BoltStepping
	case branchesCounting:
		return doctor.BoltCounting
	case branchesBreakpoints:
		return doctor.BoltBreakpoints
	}
	return doctor.Bolt
}

// counts reports whether jumps shall be counted.
func (o *Options) counts() bool {
	return o.Branches == branchesCounting || o.Branches == branchesBreakpoints
}

// check rejects contradictory options.
func (o *Options) check() error {
	if err := o.ProfileOptions.check(o.Output); err != nil {
		return err
	}
	option, sampling := o.forHardware()
	switch {
	case o.AllBinaries && o.Optimize != "":
		return usage.Errorf("%s and %s cannot be combined: fulgur optimizes one binary at a time", usage.Optimize, usage.AllBinaries)
	case !o.AllBinaries && !o.Kernel && o.Binary == "" && len(o.Target.PIDs) == 0 && len(o.Command) == 0:
		return usage.Errorf("no binary given: use %s PID for the program of a process, %s FILE, or %s", usage.Process, usage.Binary, usage.AllBinaries)
	case o.Kernel && (o.counts() || o.Branches == branchesStepping):
		return usage.Errorf("%s and %s %s cannot be combined: only the processor records branches in the kernel", usage.Kernel, usage.Branches, o.Branches)
	case o.Basic && o.Branches != branchesAuto && o.Branches != "":
		return usage.Errorf("%s and %s %s cannot be combined: %[1]s samples without branches", usage.Basic, usage.Branches, o.Branches)
	case o.Branches == branchesStepping && sampling:
		return usage.Errorf("%s is only for sampling; for stepping use %s and %s", option, usage.MaxOverhead, usage.Burst)
	case o.counts() && (o.Event != "" || o.RingSize != 0):
		return usage.Errorf("%s is only for sampling branches; for counting use %s", option, usage.MaxOverhead)
	case o.counts() && o.AllBinaries:
		return usage.Errorf("%s %s is for one binary: choose it with %s", usage.Branches, o.Branches, usage.Binary)
	case o.MaxOverhead != 0 && (o.Branches == branchesHardware || o.Basic):
		return usage.Errorf("%s is only for counting and stepping", usage.MaxOverhead)
	case o.MaxStall != 0 && (o.Basic || slices.Contains([]string{branchesHardware, branchesBreakpoints, branchesStepping}, o.Branches)):
		return usage.Errorf("%s is only for counting with uprobes", usage.MaxStall)
	case o.BurstMax != 0 && (o.Branches == branchesHardware || o.counts() || o.Basic):
		return usage.Errorf("%s is only for stepping", usage.Burst)
	case o.Optimize != "" && o.Output == "-":
		return usage.Errorf("%s - does not work with %s: llvm-bolt reads the profile from a file", usage.Output, usage.Optimize)
	}
	return nil
}

// job is the [session.Job] of a profile.
type job struct {
	options   *Options
	recorder  recorder                 // nil with Basic
	basic     *session.UserSampling    // with Basic, else nil
	optimizer *optimizer               // nil if there is nothing to optimize
	stdin     func() (*os.File, error) // opens the command's standard input again
	out       *profileWriter
	giveUp    context.CancelFunc // ends waits for readers of out
	report    *report            // when done
}

// Prepare implements [session.Job].
func (j *job) Prepare(ctx context.Context) (err error) {
	o := j.options
	if err := o.check(); err != nil {
		return err
	}
	choose := chooseLLVM
	if o.Optimize != "" {
		choose = installedLLVM
	}
	l, err := o.chooseLLVM(ctx, choose)
	if err != nil {
		return err
	}
	if err := doctor.CheckPrivileges(o.command(), o.Stderr, o.Quiet); err != nil {
		return err
	}
	if err := session.CheckTarget(&o.Target); err != nil {
		return err
	}
	if o.Basic {
		j.basic, err = session.NewUserSampling(o.samplingOptions())
	} else {
		j.recorder, err = o.chooseRecorder(o.Stderr)
	}
	if err != nil {
		return doctor.Explain(err, "sampling branches")
	}
	path := o.Output
	if o.Optimize != "" {
		if j.optimizer, err = newOptimizer(ctx, l, o.Optimize); err != nil {
			return err
		}
		j.stdin = again(os.Stdin)
		path = cmp.Or(o.Output, j.optimizer.path("profile."+Format))
	}
	j.out, j.giveUp, err = output.Outlive(ctx, func(waits context.Context) (*profileWriter, error) {
		return openWriter(waits, l, &o.ProfileOptions, path, o.Stdout)
	})
	return err
}

// Close implements [session.Job].
func (j *job) Close() error {
	var err error
	if j.out != nil {
		err = j.out.abort()
	}
	if j.optimizer != nil {
		err = errors.Join(err, j.optimizer.close())
	}
	return err
}

// choose determines the binaries to profile, and checks whether they can be
// optimized.
func (j *job) choose(ctx context.Context, collector *bolt.Collector) (*binaries, error) {
	bs := &binaries{collector: collector}
	if j.options.AllBinaries {
		return bs, nil
	}
	err := bs.chooseFor(ctx, j.options)
	if err == nil && j.options.Binary == "" && !j.options.Kernel && len(j.options.Command) > 0 {
		j.noteScript(bs)
	}
	if err == nil && j.options.Samples != "" {
		err = checkDebug(ctx, bs)
	}
	if err == nil && j.optimizer != nil {
		err = j.optimizer.check(bs)
	}
	if err == nil && j.options.unattended && bs.only.Optimized {
		err = fmt.Errorf("%s was already optimized by llvm-bolt, which cannot use its profile: profile machines that run the original file", plain.Terminal(bs.only.Name))
	}
	if err != nil {
		return nil, errors.Join(err, bs.close())
	}
	return bs, nil
}

// noteScript notes that the command is a script, because the profile is of its
// interpreter.
func (j *job) noteScript(bs *binaries) {
	command, err := exec.LookPath(j.options.Command[0])
	if err != nil {
		return
	}
	info, err := os.Stat(command)
	if err == nil && !bs.isChosen(info) && !j.options.Quiet {
		fmt.Fprintf(j.options.Stderr, "fulgur: %s is a script; profiling its interpreter %s (choose another program with %s)\n", plain.Terminal(command), plain.Terminal(bs.only.Name), usage.Binary)
	}
}

// Measure implements [session.Job].
func (j *job) Measure(ctx context.Context, launched *target.Launched) (err error) {
	collector := j.options.newCollector()
	defer collector.Close()
	bs, err := j.choose(ctx, collector)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bs.close()) }()
	if j.options.Verbose {
		fmt.Fprintf(j.options.Stderr, "fulgur: %s: %s\n", plain.Terminal(j.options.Target.String()), j.how())
	}
	m, err := j.attach(bs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	err = m.sample(ctx, launched)
	if err != nil && !errors.Is(err, stepping.ErrKilled) {
		return err
	}
	return errors.Join(err, j.finish(ctx, bs, m, launched)) // finish also after an error
}

// how describes the measurement.
func (j *job) how() string {
	if j.recorder != nil {
		return j.recorder.String()
	}
	return fmt.Sprintf("sampling %s, %s, without branches", j.basic.Event().Name, sampling.Rate{Frequency: j.options.samplingOptions().Frequency})
}

// measurement fills a collector.
type measurement interface {
	// sample measures until the end.
	sample(ctx context.Context, launched *target.Launched) error
	// took returns the duration of the measurement.
	took() time.Duration
	// describeTo adds the measurement's own data to the report.
	describeTo(report *report) error
	close() error
}

// attach opens everything, with sampling not yet enabled.
func (j *job) attach(bs *binaries) (measurement, error) {
	if j.options.Basic {
		return &basicRun{options: j.options, sampling: j.basic, binaries: bs}, nil
	}
	r, err := attachBranches(j.options, j.recorder, bs)
	return r, doctor.Explain(err, "sampling "+j.options.Target.String())
}

// finish writes the profiles, optimizes, and prints the summary.
func (j *job) finish(interruptible context.Context, bs *binaries, m measurement, launched *target.Launched) error {
	ctx := context.WithoutCancel(interruptible) // an interrupt of the measurement does not cancel this
	waits := ctx
	if j.options.Interruptible != nil {
		var stop func()
		waits, stop = j.options.Interruptible(ctx)
		defer stop()
	}
	defer context.AfterFunc(waits, j.giveUp)()
	j.out.open = bs.open
	paths, err := j.out.write(ctx, bs.collector)
	if err != nil {
		return err
	}
	report := newReport(bs.collector, j.out, paths, m.took())
	if err := m.describeTo(report); err != nil {
		return err
	}
	report.suggestOthers(&j.options.ProfileOptions)
	switch {
	case j.optimizer != nil:
		err = j.optimizer.optimize(waits, bs, j.out.path, report)
		if err == nil && j.options.Check > 0 {
			j.check(interruptible, bs, launched, report)
		}
	case bs.only != nil && !bs.inPlace():
		r := report.of(bs.only)
		r.Warnings = append(r.Warnings, "the file at this path is not the one that ran: give llvm-bolt the file that ran, for example /proc/PID/exe")
	}
	j.report = report
	if j.options.Quiet {
		return err
	}
	return errors.Join(err, report.write(j.options.Stderr, j.options.StatsJSON))
}
