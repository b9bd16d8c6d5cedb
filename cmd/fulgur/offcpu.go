package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"fulgur/internal/capture/goroutines"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/message/usage"
	"fulgur/internal/session"
)

// offCPUCommand has the flags of bcc's offcputime, by name.
type offCPUCommand struct {
	subjectFlags
	UserThreads   bool `short:"u" name:"user-threads-only" xor:"threads" group:"what" help:"Measure user threads only."`
	KernelThreads bool `short:"k" name:"kernel-threads-only" xor:"threads" group:"what" help:"Measure kernel threads only."`
	Goroutines    bool `xor:"threads,states" group:"what" help:"Measure goroutines of Go programs instead of threads."`

	MinBlock    micros  `short:"m" name:"min-block-time" placeholder:"US" group:"how" help:"Count only waits of at least this many microseconds."`
	MaxBlock    micros  `short:"M" name:"max-block-time" placeholder:"US" group:"how" help:"Count only waits of at most this many microseconds."`
	State       *states `placeholder:"STATES" xor:"states" group:"how" help:"Count only waits in these thread states, by their letters in ps(1): R (preempted), S (sleeping), D (disk sleep), T (stopped), t (traced), P (parked), I (idle); or one state by the kernel's number, like offcputime."`
	Via         string  `enum:"auto,bpf,perf" default:"auto" placeholder:"METHOD" group:"how" help:"How to measure: bpf uses BPF programs; perf uses perf events alone, which need no root for your own processes (-p, -L or a command), and see the stacks of those waits that are long enough to look at; auto, the default, uses the first of these that is possible."`
	WakerStacks bool    `group:"how" help:"Show the stack that woke each thread or goroutine, upside down, on top of the stack of the wait."`

	profileFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of waiting threads or goroutines to track."`
}

// Help returns the text of fulgur offcpu --help besides the flags.
func (*offCPUCommand) Help() string {
	return `Measures off-CPU time: the time from when a thread leaves the CPU until it runs again,
by its stack when it left, with the reason on top, such as [futex] or [disk read].
The time consists of sleeping and, after the wake-up, waiting for a CPU. Text, folded
stacks and flame graphs show the sum; pprof files have all values. A wait that begins
before the measurement or ends after it counts only for the time within it.

With --goroutines, it measures the waits of goroutines of Go programs (Go 1.21 to 1.26):
from when a goroutine parks until it is runnable, with Go's reason on top of its stack,
such as [chan receive], [select], [IO wait] or [sync.Mutex.Lock], and from then until it
runs, with [runnable] on top. Each wait hits three breakpoints or more, which take a
microsecond or more each. docs/goroutines.md has the details.

Examples:

    # off-CPU time of a process for 10 seconds, as a flame graph
    sudo fulgur offcpu -p 1234 -o waits.html 10

    # disk waits of a millisecond or longer, on the whole machine
    sudo fulgur offcpu -m 1000 --state D 10

    # which servers and clients a process waits for
    sudo fulgur offcpu --by peer -p 1234 -o waits.html 10

    # what the goroutines of a Go server wait for
    sudo fulgur offcpu --goroutines -p 1234 -o goroutines.html 10

    # without root: the waits of a command of yours, see docs/without-root.md
    fulgur offcpu -o waits.html -- ./server

    # a command's waits, with the stacks of the wakers
    sudo fulgur offcpu --waker-stacks -o waits.svg -- make -j8
`
}

func (c *offCPUCommand) run(ctx context.Context, env environment) (int, error) {
	if c.Goroutines {
		return c.measureGoroutines(ctx, env)
	}
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o)
	return session.Measure(ctx, o, offcpu.New(c.config()))
}

// options translates the flags that several commands have.
func (c *offCPUCommand) options() (session.Options, error) {
	o, err := sessionOptions(c.subjectFlags, c.profileFlags)
	o.Via = c.Via
	return o, err
}

// measureGoroutines measures goroutines, for which there is one method.
func (c *offCPUCommand) measureGoroutines(ctx context.Context, env environment) (int, error) {
	switch {
	case c.By.peer:
		return 0, usage.Errorf("--by peer does not work with --goroutines: the network poller waits for the sockets of all goroutines")
	case c.Via == "perf":
		return 0, usage.Errorf("--via perf does not work with --goroutines, which need BPF programs")
	}
	return env.measure(ctx, c.subjectFlags, c.profileFlags, goroutines.New(goroutines.Config{
		Shortest:       time.Duration(c.MinBlock),
		Longest:        time.Duration(c.MaxBlock),
		WakerStacks:    c.WakerStacks,
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}))
}

// config translates the command's own flags.
func (c *offCPUCommand) config() offcpu.Config {
	threads := offcpu.AllThreads
	switch {
	case c.UserThreads:
		threads = offcpu.UserThreads
	case c.KernelThreads:
		threads = offcpu.KernelThreads
	}
	return offcpu.Config{
		Threads:        threads,
		States:         offcpu.States(orZero(c.State)),
		Shortest:       time.Duration(c.MinBlock),
		Longest:        time.Duration(c.MaxBlock),
		WakerStacks:    c.WakerStacks,
		Peers:          c.By.peer,
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}
}

// micros is a duration, given in microseconds as in bcc's tools.
type micros time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *micros) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || n > math.MaxInt64/uint64(time.Microsecond) {
		return fmt.Errorf("%q is not a number of microseconds", text)
	}
	*m = micros(n) * micros(time.Microsecond)
	return nil
}

// states are the thread states in which waits count.
type states offcpu.States

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *states) UnmarshalText(text []byte) error {
	parsed, err := offcpu.ParseStates(string(text))
	*s = states(parsed)
	return err
}
