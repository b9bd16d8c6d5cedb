package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"fulgur/internal/message/plain"
	"fulgur/internal/session"
)

// recordingName is the default name of recordings.
const recordingName = "fulgur.json.gz"

// recordCommand has the flags of the commands that write profiles, and some of
// samply record's.
type recordCommand struct {
	subjectFlags
	Events    []string `short:"e" name:"event" sep:"none" placeholder:"EVENT" complete:"event" group:"what" help:"Also record each hit of this event, with its stack and fields; see fulgur count. Can be given several times."`
	Filter    string   `placeholder:"CONDITION" group:"what" help:"Record only hits for which this condition holds, for example 'ret < 0 && fd != 2'; see fulgur count."`
	Locks     bool     `group:"what" help:"Also record each wait for a lock, with the lock and the thread that ended the wait; see fulgur locks."`
	NoCPU     bool     `name:"no-cpu" group:"what" help:"Do not record CPU samples."`
	NoOffCPU  bool     `name:"no-offcpu" group:"what" help:"Do not record waits."`
	NoBlockIO bool     `name:"no-blockio" group:"what" help:"Do not record disk requests."`
	NoFaults  bool     `name:"no-faults" group:"what" help:"Do not record page faults."`

	Frequency *frequency `short:"F" placeholder:"HZ" xor:"rate" group:"how" help:"Samples per second on each CPU, or max (also -r, --rate). Default: ${recordRate}."`
	rateFlag
	Via         string `enum:"auto,bpf,perf" default:"auto" placeholder:"METHOD" group:"how" help:"How to record: bpf uses BPF programs; perf uses perf events alone, which need no root for your own processes (-p, -L or a command), and see only code and waits, without disk requests and page faults; auto, the default, uses the first of these that is possible."`
	MinBlock    micros `short:"m" name:"min-block-time" placeholder:"US" group:"how" help:"Record only waits of at least this many microseconds."`
	WakerStacks bool   `group:"how" help:"Record the stack of the waker at the end of each wait."`
	FaultCount  *count `placeholder:"N" group:"how" help:"Record every Nth page fault, with weight N. Default: 1."`

	MaxRate *count `placeholder:"N" group:"how" help:"Record at most N hits of an event, or waits for locks, per second on each CPU, to protect the target. Default: ${recordHits}."`

	flightFlags

	SaveOnly bool   `short:"s" aliases:"no-open" group:"output" help:"Do not open the recording in a browser (also --no-open)."`
	Value    string `placeholder:"TYPE" group:"output" help:"The value to show first, and the only one in formats with a single value: samples, cpu (the default), off-cpu, block-io (bytes), block-io-time, faults, locks or an event."`
	profileFlags
	placeFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of waiting threads, and of disk requests in flight, to track."`
	StackNodes     *count `placeholder:"N" group:"limit" help:"Maximum number of stack nodes to keep; a node is a frame with its callers. Stacks that need more are truncated. Default: ${stackNodes}, a few hundred megabytes."`
}

// recordVars returns values that the help text contains.
func recordVars() kong.Vars {
	return kong.Vars{
		"recordRate": strconv.Itoa(session.DefaultRecordFrequency),
		"recordHits": strconv.Itoa(session.DefaultRecordHits),
		"stackNodes": strconv.Itoa(session.DefaultStackNodes),

		"flightFiles":  strconv.Itoa(session.DefaultFlightFiles),
		"flightMemory": strconv.Itoa(session.DefaultFlightMemory >> 20),
	}
}

// Help returns the text of fulgur record --help besides the flags.
func (*recordCommand) Help() string {
	return `Records CPU samples, waits, disk requests and page faults on one timeline, to show why
a program is slow even though it uses little CPU time. With -e, the timeline also has the
hits of events. The recording is a file for the Firefox Profiler, ` + recordingName + ` by
default. On a terminal, fulgur then shows it in a browser, like fulgur view, until
Ctrl-C. Pages (.html) have a heat map and a flame chart of each thread. Other formats have
totals instead of a timeline: pprof files have all values; text, folded stacks and pictures
have one, which --value chooses.

With --keep, fulgur records until it is stopped, but holds only the last moments, in memory. When a
trigger (--on) fires, it writes them to a file in a directory, ` + incidentsName + ` by default, and goes on
recording. The triggers:

` + triggerHelp() + `
Examples:

    # a command, from its first instruction to its exit
    sudo fulgur record -- tar -xf archive.tar

    # one process, for 10 seconds, without its page faults
    sudo fulgur record -p 1234 --no-faults 10

    # a process, with each openat call and the name of the file
    sudo fulgur record -p 1234 -e syscalls:sys_enter_openat 10

    # a process, with its waits for mutexes and locks of the kernel
    sudo fulgur record --locks -p 1234 10

    # the whole machine, without waits shorter than a millisecond
    sudo fulgur record -m 1000 -o machine.json.gz 10

    # a file with the 30 seconds before, and 5 after, each time that the service waits too long
    sudo fulgur record --keep 30s --on 'runq>100ms' --on crash -p 1234 -o incidents/

    # a flame graph of a command's disk requests, by bytes
    sudo fulgur record -o disk.html --value block-io -- make -j8
`
}

func (c *recordCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	if c.records() {
		flight, err := c.flight(o)
		if err != nil {
			return exitUsage, usageError{err}
		}
		return session.Flight(ctx, flight)
	}
	if err := c.unused(); err != nil {
		return exitUsage, usageError{err}
	}
	code, err := session.Measure(ctx, o.Options, o.Subject())
	if err != nil {
		return code, err
	}
	if !c.shows(o, isTerminal(env.stderr)) {
		if o.Output == recordingName && !o.Quiet {
			_, _ = fmt.Fprintf(env.stderr, "to view it: fulgur view %s\n", o.Output)
		}
		return code, nil
	}
	// The interrupt that ended the recording must not end the view.
	ctx, stop := interruptible(context.WithoutCancel(ctx))
	defer stop()
	if err := show(ctx, o.Output, env.stderr); err != nil {
		return exitFailed, err
	}
	return code, nil
}

// show shows a recording, like fulgur view, until ctx ends. It runs a process of its
// own, which drops its capabilities before it opens any file. This process cannot
// drop them, because one of its threads may be blocked on a file system that does
// not respond.
func show(ctx context.Context, path string, stderr io.Writer) error {
	if !filepath.IsAbs(path) {
		path = "./" + path // not a flag
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "view", "--until-eof", path)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = stderr
	// Only this process handles Ctrl-C: a second signal would cut off responses. The other one ends with
	// its input, which also ends when this process is killed. The kernel would not send it a signal then
	// if fulgur's file has capabilities.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err == nil {
		cmd.Cancel = input.Close
		err = cmd.Run()
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("show %s: %w", plain.Terminal(path), err)
	}
	return nil
}

// shows reports whether to show the recording at its end: on a terminal, if it is a
// file for the Firefox Profiler.
func (c *recordCommand) shows(o session.RecordOptions, terminal bool) bool {
	forFirefox := o.Format == "firefox" || o.Format == "" && strings.HasSuffix(o.Output, ".json.gz")
	return terminal && forFirefox && !c.SaveOnly && !o.Quiet && o.Output != "" && o.Output != "-" && !strings.HasPrefix(o.Output, "/dev/")
}

// nameOutput names the recording, if the flags do not.
func (c *recordCommand) nameOutput() {
	if c.records() {
		c.Output = cmp.Or(c.Output, incidentsName)
		return
	}
	if format, err := c.format(); c.Output == "" && err == nil && (format == "" || format == "firefox") {
		c.Output = recordingName
	}
}

// options translates the flags.
func (c *recordCommand) options() (session.RecordOptions, error) {
	c.nameOutput()
	common, err := sessionOptions(c.subjectFlags, c.profileFlags)
	common.StackNodes, common.TimesIfAny, common.Via = uint32(orZero(c.StackNodes)), true, c.Via
	return session.RecordOptions{
		Options:     common,
		Frequency:   c.rate(c.Frequency),
		Events:      c.Events,
		Filter:      c.Filter,
		Locks:       c.Locks,
		MaxRate:     uint64(orZero(c.MaxRate)),
		Places:      c.places(),
		NoCPU:       c.NoCPU,
		NoOffCPU:    c.NoOffCPU,
		NoBlockIO:   c.NoBlockIO,
		NoFaults:    c.NoFaults,
		Shortest:    time.Duration(c.MinBlock),
		WakerStacks: c.WakerStacks,
		FaultPeriod: uint64(orZero(c.FaultCount)),
		Value:       c.Value,

		PendingEntries: uint32(orZero(c.PendingEntries)),
	}, err
}
