// Package boltprofile makes profiles for llvm-bolt: of the branches that are taken
// while it measures, recorded by the processor or by stepping, of those that perf has
// recorded, and of several such profiles; and has the installed llvm-bolt optimise
// by them. What is counted, and how it is written, [fulgur/internal/bolt] knows.
package boltprofile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/stepping"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/session"
)

// Options describe one profile for llvm-bolt.
type Options struct {
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

	// Branches is what records branches: "hardware", "stepping", or "auto" or
	// empty for hardware where there is some, else for a command stepping.
	Branches string
	// Event names the sampled event; empty chooses the best that there is.
	Event string
	// Frequency is in samples a second for each CPU; 0 stands for as many as
	// the kernel allows, with Basic for a default.
	Frequency uint64
	// MaxOverhead bounds what stepping costs a thread, as a share of its own
	// time, and BurstMax is how long it holds a thread at most at a time. 0
	// takes the default of each.
	MaxOverhead float64
	BurstMax    time.Duration
	// Basic takes samples without branches.
	Basic bool
	// Duration is how long to sample. 0 takes the default: with a command
	// until it exits, with stepping until the profile is sufficient, but for
	// 5 minutes at most, otherwise 10 s, as ebpf-bolt does.
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
	// a directory, and with Optimize empty for none.
	Output string
	// Optimize, if not empty, is where llvm-bolt is to put the binary after it
	// was optimised by the profile.
	Optimize string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// StatsJSON writes the summary as JSON, Quiet leaves it out, Verbose tells
	// what is about to be done; Progress shows a progress line on Stderr.
	StatsJSON, Quiet, Verbose, Progress bool
}

// defaultDuration is how long is sampled unless told otherwise, as in ebpf-bolt.
const defaultDuration = 10 * time.Second

// Measure samples branch records and writes profiles in the pre-aggregated format
// of perf2bolt. It ends as [session.Run] does, with the same exit codes.
func Measure(ctx context.Context, o Options) (exitCode int, err error) {
	return session.Driver{Command: o.Command, Target: &o.Target, Stderr: o.Stderr, Quiet: o.Quiet}.Run(ctx, &job{options: &o})
}

// command names to the doctor what o asks for, as far as it is known before the
// machine is.
func (o *Options) command() doctor.Command {
	if o.Branches == branchesStepping {
		return doctor.BoltStepping
	}
	return doctor.Bolt
}

// check refuses what contradicts itself.
func (o *Options) check() error {
	switch {
	case o.AllBinaries && o.Binary != "":
		return usage.Errorf("one binary and all binaries cannot be combined")
	case o.AllBinaries && o.Optimize != "":
		return usage.Errorf("--optimize and --all-binaries cannot be combined: fulgur optimizes one binary at a time")
	case o.AllBinaries && (o.Output == "" || o.Output == "-"):
		return usage.Errorf("--all-binaries needs a directory for the profiles: -o DIR")
	case !o.AllBinaries && o.Binary == "" && len(o.Target.PIDs) == 0 && len(o.Command) == 0:
		return usage.Errorf("no binary given: use -p PID for the program of a process, --binary FILE, or --all-binaries")
	case o.Basic && (o.Branches == branchesHardware || o.Branches == branchesStepping):
		return usage.Errorf("--basic and --branches %s cannot be combined: --basic samples without branches", o.Branches)
	case o.Branches == branchesStepping && o.forHardware() != "":
		return usage.Errorf("%s is only for sampling; for stepping use --max-overhead and --burst", o.forHardware())
	case o.Branches == branchesHardware && (o.MaxOverhead != 0 || o.BurstMax != 0), o.Basic && (o.MaxOverhead != 0 || o.BurstMax != 0):
		return usage.Errorf("--max-overhead and --burst are only for stepping")
	case o.Optimize != "" && o.Output == "-":
		return usage.Errorf("-o - does not work with --optimize: llvm-bolt reads the profile from a file")
	}
	return nil
}

// job is the [session.Job] of a profile.
type job struct {
	options   *Options
	recorder  recorder              // nil with Basic
	basic     *session.UserSampling // with Basic, else nil
	optimizer *optimizer            // nil if there is nothing to optimise
	out       *preaggWriter
}

// Prepare implements [session.Job].
func (j *job) Prepare(ctx context.Context) (err error) {
	o := j.options
	if err := o.check(); err != nil {
		return err
	}
	l, err := chooseLLVM(ctx, o.LLVM)
	if o.Optimize != "" {
		l, err = installedLLVM(ctx, o.LLVM)
	}
	if err != nil {
		return err
	}
	if o.Basic && l.version < tracesLLVM {
		return errBasicLLVM
	}
	if err := doctor.CheckPrivileges(o.command(), o.Stderr, o.Quiet); err != nil {
		return err
	}
	if err := session.CheckTarget(o.Target); err != nil {
		return err
	}
	if o.Basic {
		j.basic, err = session.NewUserSampling(o.samplingOptions())
	} else {
		j.recorder, err = o.chooseRecorder(o.Stderr)
	}
	if err != nil {
		return doctor.Explain(err, "sample branches")
	}
	path := o.Output
	if o.Optimize != "" {
		if j.optimizer, err = newOptimizer(ctx, l, o.Optimize); err != nil {
			return err
		}
		path = cmp.Or(o.Output, j.optimizer.path("profile."+Format))
	}
	j.out, err = openPreagg(l, o.Basic, o.AllBinaries, path, o.Stdout)
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

// choose finds out which binaries to take the profiles of, and whether they
// can be optimised.
func (j *job) choose(collector *bolt.Collector) (*binaries, error) {
	bs := &binaries{collector: collector}
	if j.options.AllBinaries {
		return bs, nil
	}
	err := bs.choose(j.options.Binary, j.options.Target.PIDs)
	if err == nil && j.options.Binary == "" && len(j.options.Command) > 0 {
		j.noteScript(bs)
	}
	if err == nil && j.optimizer != nil {
		err = j.optimizer.check(bs)
	}
	if err != nil {
		return nil, errors.Join(err, bs.close())
	}
	return bs, nil
}

// noteScript tells the user if the command is a script, since the profile is of
// the program that runs it.
func (j *job) noteScript(bs *binaries) {
	command, err := exec.LookPath(j.options.Command[0])
	if err != nil {
		return
	}
	info, err := os.Stat(command)
	if err == nil && !bs.isChosen(info) && !j.options.Quiet {
		fmt.Fprintf(j.options.Stderr, "fulgur: %s is a script; profiling its interpreter %s (choose another program with --binary)\n", plain.Terminal(command), plain.Terminal(bs.only.Name))
	}
}

// Take implements [session.Job].
func (j *job) Take(ctx context.Context, launched *target.Launched) (err error) {
	collector := bolt.NewCollector(bolt.Options{Strict: j.options.Strict})
	defer collector.Close()
	bs, err := j.choose(collector)
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
	return errors.Join(err, j.finish(ctx, bs, m)) // there is what came before
}

// how says what is done to the target.
func (j *job) how() string {
	if j.recorder != nil {
		return j.recorder.String()
	}
	return fmt.Sprintf("sampling %s, %s, without branches", j.basic.Event().Name, sampling.Rate{Frequency: j.options.samplingOptions().Frequency})
}

// measurement is what fills a collector.
type measurement interface {
	// sample measures until something ends it.
	sample(ctx context.Context, launched *target.Launched) error
	// took is how long that was.
	took() time.Duration
	// describeTo adds to the report what is known beside the counts.
	describeTo(report *report) error
	close() error
}

// attach opens everything, with sampling not yet enabled.
func (j *job) attach(bs *binaries) (measurement, error) {
	if j.options.Basic {
		return &basicRun{options: j.options, sampling: j.basic, binaries: bs}, nil
	}
	r, err := attachBranches(j.options, j.recorder, bs)
	return r, doctor.Explain(err, "sample "+j.options.Target.String())
}

// finish writes what was measured, optimises and sums up.
func (j *job) finish(ctx context.Context, bs *binaries, m measurement) error {
	ctx = context.WithoutCancel(ctx) // what ended the measurement does not end this
	j.out.open = bs.open
	paths, err := j.out.write(ctx, bs.collector)
	if err != nil {
		return err
	}
	report := newReport(bs.collector, j.out, paths, m.took())
	if err := m.describeTo(report); err != nil {
		return err
	}
	switch {
	case j.optimizer != nil:
		err = j.optimizer.optimize(ctx, bs, j.out.path, report)
	case bs.only != nil && !bs.inPlace():
		r := report.of(bs.only)
		r.Warnings = append(r.Warnings, "the file at this path is not the one that ran: give llvm-bolt the file that ran, for example /proc/PID/exe")
	}
	if j.options.Quiet {
		return err
	}
	return errors.Join(err, report.write(j.options.Stderr, j.options.StatsJSON))
}
