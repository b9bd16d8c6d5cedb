package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/slow"
)

// slowCommand has the flags of fulgur latency, and those that choose what is slow.
type slowCommand struct {
	Events []string `short:"e" name:"event" required:"" sep:"none" placeholder:"EVENT" complete:"event" group:"what" help:"Follow threads from this event: kprobe:FUNCTION, uprobe:PATH:FUNCTION, tracepoint:GROUP:NAME or usdt:PATH:PROVIDER:NAME. --until gives the end. Names can have the wildcards * and ?."`
	Until  string   `placeholder:"EVENT" complete:"event" group:"what" help:"Follow threads until this event, written as for -e. Default: the return of the function, or the event's counterpart, such as sys_exit_read for sys_enter_read."`
	Key    string   `placeholder:"FIELD" group:"what" help:"Only tid, the default: the same thread has both events."`
	subjectFlags
	Filter string `placeholder:"CONDITION" group:"what" help:"Follow threads only if this condition holds for the first event, for example 'count > 4096'. See fulgur count."`

	Over    length  `placeholder:"TIME" xor:"slow" group:"how" help:"Intervals of at least this length are slow: 20ms."`
	Slowest share   `placeholder:"P%" xor:"slow" group:"how" help:"The slowest P percent of intervals are slow, by those so far: 1%."`
	Between lengths `placeholder:"TIME,TIME" xor:"slow" group:"how" help:"Intervals of at least the first length and less than the second are slow."`
	Show    string  `placeholder:"FIELD,…" group:"output" help:"Show these fields of the first event for each of the slowest intervals: argN, field:NAME. argN:string is the string at an address."`
	List    *count  `placeholder:"N" group:"output" help:"List the N slowest intervals, at most ${slowRowsMax}. Default: ${slowRows}."`

	WakerStacks bool `group:"how" help:"Show the stack that woke each thread, upside down, on top of the stack of the wait."`

	Frequency *frequency `short:"F" placeholder:"HZ" group:"how" help:"Samples per second on each CPU, which divide the time that threads run. Default: ${slowFrequency}."`
	MaxRate   *count     `placeholder:"N" group:"how" help:"Follow at most N intervals per second on each CPU, to protect the target. Default: 100000."`

	profileFlags
	placeFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of threads to follow. Default: 4096."`
}

// slowVars returns values that the help text contains.
func slowVars() kong.Vars {
	return kong.Vars{
		"slowFrequency": strconv.Itoa(slow.DefaultFrequency),
		"slowRows":      strconv.Itoa(slow.DefaultRows),
		"slowRowsMax":   strconv.Itoa(latency.MaxRows),
	}
}

// Help returns the text of fulgur slow --help besides the flags.
func (*slowCommand) Help() string {
	return `Shows what threads do in slow intervals, such as requests, and how that differs from the
others: they run, wait for a CPU, or wait for something else. An interval is a function
call, or the time between two events of a thread, as in fulgur latency. Exactly one of
--over, --slowest and --between says which are slow. A page (.html) shows the time of an
average slow interval by stack, and in color what the others do less or more. The summary
has the reasons in a sentence, percentiles, a histogram and the slowest intervals.
docs/slow.md has the details.

Examples:

    # what PostgreSQL does in queries of 20 ms or longer
    sudo fulgur slow -e usdt:/usr/lib/postgresql/15/bin/postgres:postgresql:query__start \
        --until usdt:/usr/lib/postgresql/15/bin/postgres:postgresql:query__done --over 20ms -o slow.html 60

    # the same, with the text of the 20 slowest queries
    sudo fulgur slow -e usdt:/usr/lib/postgresql/15/bin/postgres:postgresql:query__start \
        --until usdt:/usr/lib/postgresql/15/bin/postgres:postgresql:query__done \
        --over 20ms --show arg0:string 60

    # the slowest percent of the calls of a function
    sudo fulgur slow -e uprobe:/usr/bin/server:handle --slowest 1% -p 1234 30

    # system calls that take 1 to 10 ms
    sudo fulgur slow -e syscalls:sys_enter_fsync --between 1ms,10ms 10
`
}

func (c *slowCommand) run(ctx context.Context, env environment) (int, error) {
	config := slow.Config{
		Config: latency.Config{
			Events:         c.Events,
			Until:          c.Until,
			Key:            c.Key,
			Filter:         c.Filter,
			Show:           c.Show,
			MaxRate:        uint64(orZero(c.MaxRate)),
			Places:         c.places(),
			PendingEntries: uint32(orZero(c.PendingEntries)),
		},
		Over:        time.Duration(c.Over),
		Slowest:     float64(c.Slowest),
		Between:     c.Between.bounds(),
		Rows:        slow.DefaultRows,
		WakerStacks: c.WakerStacks,
		Frequency:   uint64(orZero(c.Frequency)),
	}
	if c.List != nil {
		config.Rows = int(*c.List)
	}
	return env.measure(ctx, c.subjectFlags, c.profileFlags, slow.New(config))
}

// length is the length of an interval.
type length time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *length) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a time above 0 with a unit, such as 20ms", text)
	}
	*l = length(d)
	return nil
}

// lengths are two lengths of intervals.
type lengths []length

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lengths) UnmarshalText(text []byte) error {
	first, second, ok := strings.Cut(string(text), ",")
	if !ok {
		return fmt.Errorf("%q is not two times, such as 20ms,50ms", text)
	}
	both := make(lengths, 2)
	for i, part := range []string{first, second} {
		if err := both[i].UnmarshalText([]byte(part)); err != nil {
			return err
		}
	}
	*l = both
	return nil
}

// bounds translates the flag, nil if it is not given.
func (l lengths) bounds() *slow.Bounds {
	if len(l) == 0 {
		return nil
	}
	return &slow.Bounds{From: time.Duration(l[0]), Until: time.Duration(l[1])}
}

// share is a share of intervals, given in percent.
type share float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *share) UnmarshalText(text []byte) error {
	percent, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(text), "%")), 64)
	if err != nil || !(percent > 0 && percent < 100) {
		return fmt.Errorf("%q is not a percentage between 0%% and 100%%", text)
	}
	*s = share(percent / 100)
	return nil
}
