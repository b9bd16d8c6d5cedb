package main

import (
	"context"
	"errors"
	"fmt"

	"fulgur/internal/capture/alloc"
)

// allocCommand has the flags of the commands that write profiles.
type allocCommand struct {
	Live bool `group:"what" help:"Show memory that is allocated during the measurement and not freed by its end: leaks, and memory in use."`
	subjectFlags

	Rate        *size         `placeholder:"BYTES" group:"how" help:"Take one sample per this many allocated bytes, on average. 1 samples every allocation. Default: 512K."`
	MaxOverhead *allocPercent `placeholder:"PERCENT" group:"how" help:"End the measurement early if uprobes take more than this share of the target's CPU time, or, in other processes, of the machine's; 100 for no limit. Default: 20."`

	NoProbes bool `group:"how" help:"Measure the functions of allocators, even if a program reports samples of its allocations itself (otel_memory)."`

	profileFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"With --live, maximum number of sampled allocations to track at a time. Default: 65536."`
}

// allocPercent is a percentage up to 100.
type allocPercent float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *allocPercent) UnmarshalText(text []byte) error {
	var share percent
	if err := share.UnmarshalText(text); err != nil {
		return err
	}
	if share > 1 {
		return errors.New("it is a share of CPU time: at most 100")
	}
	*p = allocPercent(share)
	return nil
}

// Help returns the text of fulgur alloc --help besides the flags.
func (*allocCommand) Help() string {
	return `Measures the bytes that programs allocate, by stack. It samples calls of malloc, calloc,
realloc and the like in the C library, or in a library or program that replaces them
(jemalloc, tcmalloc), C++'s operator new, and Go's allocator. Each call enters the kernel,
sampled or not, which takes a microsecond or more: see --max-overhead. A program that
allocates 100000 times a second runs much slower; fulgur faults, which shows where memory
grows, costs less. The values are
estimates; with --rate 1 they are exact. If a program reports samples of its own through
OpenTelemetry's probes (otel_memory), fulgur uses these instead, and --rate does not apply.
pprof files have the values of heap profiles: alloc_space (bytes) and alloc_objects
(allocations); with --live also inuse_space and inuse_objects. docs/alloc.md has the
details.

Examples:

    # memory that a process allocates, as a flame graph
    sudo fulgur alloc -p 1234 -o alloc.html 10

    # memory that a process allocates within a minute and does not free
    sudo fulgur alloc --live -p 1234 -o leaks.html 60

    # every allocation of a command
    sudo fulgur alloc --rate 1 --max-overhead 100 -- ls

    # a profile for go tool pprof
    sudo fulgur alloc -p 1234 -o heap.pb.gz 30
`
}

func (c *allocCommand) run(ctx context.Context, env environment) (int, error) {
	if !c.Quiet {
		_, _ = fmt.Fprintln(env.stderr, "fulgur: each allocation of the target takes a microsecond or more longer, sampled or not: a program with 100000 a second runs much slower; fulgur faults costs less")
	}
	return env.measure(ctx, c.subjectFlags, c.profileFlags, alloc.New(alloc.Config{
		Rate:           uint32(orZero(c.Rate)),
		Live:           c.Live,
		MaxOverhead:    float64(orZero(c.MaxOverhead)),
		NoProbes:       c.NoProbes,
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}))
}
