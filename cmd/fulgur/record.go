package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"fulgur/internal/message/plain"
	"fulgur/internal/session"
)

// recordingName is the file that recordings are written to unless told otherwise.
const recordingName = "fulgur.json.gz"

// recordCommand has the flags of the commands that take profiles, and some of
// samply record's.
type recordCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to record: seconds, or as 1m30s. Without it until Ctrl-C or the target's exit."`
	Command  []string `kong:"-"` // what follows "--"

	targetFlags
	NoCPU     bool `name:"no-cpu" group:"what" help:"Leave out what runs on the CPUs."`
	NoOffCPU  bool `name:"no-offcpu" group:"what" help:"Leave out what threads wait for."`
	NoBlockIO bool `name:"no-blockio" group:"what" help:"Leave out requests to disks."`
	NoFaults  bool `name:"no-faults" group:"what" help:"Leave out page faults."`
	User      bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel    bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	Rate        *frequency `short:"r" aliases:"frequency" placeholder:"HZ" group:"how" help:"Samples a second on each CPU, or max. Default: ${recordRate}."`
	MinBlock    micros     `short:"m" name:"min-block-time" placeholder:"US" group:"how" help:"Record times off the CPU of at least this many microseconds."`
	WakerStacks bool       `group:"how" help:"Keep where whoever ended a wait was."`
	FaultCount  *count     `placeholder:"N" group:"how" help:"Record every Nth page fault for N. Default: 1, each."`
	Delay       seconds    `placeholder:"TIME" group:"how" help:"Wait before recording."`
	walkFlags

	SaveOnly bool   `short:"s" aliases:"no-open" group:"output" help:"Write the recording, and do not show it on a terminal (also --no-open)."`
	Value    string `placeholder:"TYPE" group:"output" help:"In formats with room for one value, or to begin with, show stacks by this one: samples, cpu (the default), off-cpu, block-io (bytes), block-io-time or faults."`
	outputFlags
	limitFlags
	StackNodes *count `placeholder:"N" group:"limit" help:"How many places in stacks are kept, a frame with its callers being one; what differs from these is cut. Default: ${stackNodes}, for which fulgur needs some hundred megabytes at most."`
}

// recordVars are what the help text takes from elsewhere.
func recordVars() kong.Vars {
	return kong.Vars{
		"recordRate": strconv.Itoa(session.DefaultRecordFrequency),
		"stackNodes": strconv.Itoa(session.DefaultStackNodes),
	}
}

// Help is what fulgur record --help says beside the flags.
func (*recordCommand) Help() string {
	return `Records on one timeline what threads do on the CPUs, what they wait for, which
requests they make to disks and which page faults they have, to see why something is
slow that does not keep the CPUs busy. The recording is a file for the Firefox
Profiler, ` + recordingName + ` unless -o names another; on a terminal it is shown when
it is done, as by fulgur view, until Ctrl-C. In other formats the times
are added up: pprof files and pages have all values, text, folded stacks and pictures
the one that --value names.

Examples:

    # a command, from its first instruction to its exit
    sudo fulgur record -- tar -xf archive.tar

    # one process, for 10 seconds, without its page faults
    sudo fulgur record -p 1234 --no-faults 10

    # the waits of a millisecond and more of the whole machine
    sudo fulgur record -m 1000 -o machine.json.gz 10

    # which code makes a command's disk requests, by their bytes
    sudo fulgur record -o disk.html --value block-io -- make -j8
`
}

func (c *recordCommand) launch(argv []string) { c.Command = argv }

func (c *recordCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	code, err := session.Record(ctx, o)
	if err != nil {
		return code, err
	}
	if o.Output == recordingName && !o.Quiet {
		said(env.stderr, o.Output)
	}
	if !c.shows(o, isTerminal(env.stderr)) {
		return code, nil
	}
	// What ended the recording is not to end this.
	ctx, stop := interruptible(context.WithoutCancel(ctx))
	defer stop()
	if err := show(ctx, o.Output, env.stderr); err != nil {
		return exitFailed, err
	}
	return code, nil
}

// show shows a recording as fulgur view does, until ctx ends: in a process of its own,
// which drops its capabilities before it opens anything. This process cannot drop its
// own on a thread that waits for a file system that does not answer.
func show(ctx context.Context, path string, stderr io.Writer) error {
	if !filepath.IsAbs(path) {
		path = "./" + path // no flag
	}
	// The process ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "view", path)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = stderr
	// Ctrl-C is for us, who pass it on once: a second signal would cut answers off.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("show %s: %w", plain.Terminal(path), err)
	}
	return nil
}

// shows reports whether the recording is shown when it is done: to who sits at a
// terminal, if it is a file for the Firefox Profiler.
func (c *recordCommand) shows(o session.RecordOptions, terminal bool) bool {
	forFirefox := o.Format == "firefox" || o.Format == "" && strings.HasSuffix(o.Output, ".json.gz")
	return terminal && forFirefox && !c.SaveOnly && !o.Quiet && o.Output != "" && o.Output != "-" && !strings.HasPrefix(o.Output, "/dev/")
}

// said tells where a recording is whose name nobody chose.
func said(stderr io.Writer, path string) {
	_, _ = fmt.Fprintf(stderr, "fulgur: the recording is in %s, for https://profiler.firefox.com\n", plain.Terminal(path))
}

// options translates the flags.
func (c *recordCommand) options() (session.RecordOptions, error) {
	common, err := recording{
		duration: c.Duration,
		delay:    c.Delay,
		command:  c.Command,
		user:     c.User,
		kernel:   c.Kernel,
		walk:     c.walkFlags,
		target:   c.targetFlags,
		output:   c.outputFlags,
		limits:   c.limitFlags,
	}.options()
	if common.Output == "" && (common.Format == "" || common.Format == "firefox") {
		common.Output = recordingName
	}
	common.StackNodes = uint32(orZero(c.StackNodes))
	return session.RecordOptions{
		Options:     common,
		Frequency:   uint64(orZero(c.Rate)),
		NoCPU:       c.NoCPU,
		NoOffCPU:    c.NoOffCPU,
		NoBlockIO:   c.NoBlockIO,
		NoFaults:    c.NoFaults,
		Shortest:    time.Duration(c.MinBlock),
		WakerStacks: c.WakerStacks,
		FaultPeriod: uint64(orZero(c.FaultCount)),
		Value:       c.Value,
	}, err
}
