// Bolt measures the value of profiles: how much faster llvm-bolt makes the sqlite3 shell, Lua
// and redis-server with a profile from
//
//   - its own instrumentation, which counts every branch,
//   - fulgur bolt --branches counting for a minute, as for a process in production,
//   - fulgur bolt --branches breakpoints, likewise,
//   - fulgur bolt --branches stepping, until the profile is sufficient,
//   - the same for a minute at an overhead of 10 %, as for a process in production,
//   - fulgur bolt --basic, samples of cpu-clock for a minute.
//
// The programs are built from Debian's source with gcc -O2, unsplit functions and --emit-relocs.
// Each has a load for the profiles, and another one with other numbers for the measurement. The
// binaries run in turn in each round, and must all give the same results. Bolt also measures the
// cost of stepping for the stepped process: the duration of a load with and without stepping, in
// turn.
//
// CPU times vary with the machine's speed. With -simulate, Bolt instead counts misses of the instruction
// cache in valgrind, which are the same on each run.
//
// It needs root, apt-get, make and the packages that test/install-deps.sh installs for it, and
// takes about half an hour. Usage, at the root of the repository:
//
//	go run ./bench/bolt [-rounds 9] [-seconds 60] [-again] [-dir build/bench-bolt] [-programs sqlite,lua,redis] [-ways instrumented,counting,breakpoints,minute,basic]
//	go run ./bench/bolt -simulate [-again] [-dir build/bench-bolt] [-programs …] [-ways …]
//	go run ./bench/bolt -cost [-branches counting] [-rounds 9] [-seconds 20]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulgur/bench/program"
)

// options holds the flags.
type options struct {
	rounds   int
	seconds  int
	dir      string
	again    bool
	cost     bool
	simulate bool
	branches string // of fulgur bolt, for the cost
	subjects []subject
	ways     []string // by the names of their files; none means all
}

func main() {
	program.Main("bench/bolt", measure)
}

func measure(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("profiling needs root")
	}
	b, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	if o.cost {
		c, err := b.measureCost(ctx)
		if err != nil {
			return err
		}
		return c.write(os.Stdout, describeMachine(ctx), o)
	}
	if o.simulate {
		var all []simulated
		for _, s := range o.subjects {
			r, err := b.simulate(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			all = append(all, r)
		}
		return writeSimulations(os.Stdout, describeMachine(ctx), all)
	}
	r := report{machine: describeMachine(ctx), rounds: o.rounds}
	for _, s := range o.subjects {
		result, err := b.measure(ctx, s, &r.loads)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.results = append(r.results, result)
	}
	return r.write(os.Stdout)
}

// measure measures a subject, and appends the load averages of the rounds to loads.
func (b *bench) measure(ctx context.Context, s subject, loads *[]float64) (result, error) {
	r := result{subject: s.name}
	p, err := s.prepare(ctx, b.dir)
	if err != nil {
		return r, err
	}
	for _, w := range b.chosen(p) {
		progress("%s, profile: %s", s.name, w.name)
		v, err := b.build(ctx, p, w)
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.name, err)
		}
		progress("%s", v.note)
		r.variants = append(r.variants, v)
	}
	if err := setAccuracy(r.variants); err != nil {
		return r, err
	}
	if err := p.race(ctx, b.rounds, r.variants, loads); err != nil {
		return r, err
	}
	if len(b.ways) == 0 {
		r.slowdown, err = b.slowdown(ctx, p)
	}
	return r, err
}

// parse reads the command line.
func parse(args []string) (options, error) {
	o := options{subjects: subjects()}
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 9, "how often each binary runs")
	f.IntVar(&o.seconds, "seconds", 60, "how long profiles take that have a time")
	f.StringVar(&o.dir, "dir", filepath.Join("build", "bench-bolt"), "`folder` for the sources of the programs and all that is made of them")
	f.BoolVar(&o.again, "again", false, "use the optimized programs of an earlier run, for instance for more rounds")
	f.BoolVar(&o.cost, "cost", false, "measure the cost of counting for redis instead: the latency of requests, and the work while it is busy")
	f.BoolVar(&o.simulate, "simulate", false, "count cache misses with valgrind, instead of measuring CPU time")
	f.StringVar(&o.branches, "branches", "counting", "how fulgur bolt records branches for -cost: counting or breakpoints")
	f.Func("programs", "only these `programs`, separated by commas: sqlite, lua, redis", func(names string) error {
		o.subjects = nil
		for name := range strings.SplitSeq(names, ",") {
			all := subjects()
			i := slices.IndexFunc(all, func(s subject) bool { return s.name == name })
			if i < 0 {
				return fmt.Errorf("unknown program %q", name)
			}
			o.subjects = append(o.subjects, all[i])
		}
		return nil
	})
	f.Func("ways", "only these `ways`, separated by commas: instrumented, counting, breakpoints, sufficient, minute, basic; without the cost of stepping", func(names string) error {
		o.ways = strings.Split(names, ",")
		return nil
	})
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.rounds < 1 || o.seconds < 1 {
		return o, errors.New("-rounds and -seconds must be at least 1")
	}
	return o, nil
}

// bench holds what the measurements of all subjects share.
type bench struct {
	options
	fulgur string // program
}

// prepare builds fulgur.
func prepare(ctx context.Context, o options) (*bench, error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	o.dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b := &bench{options: o, fulgur: filepath.Join(dir, "fulgur")}
	_, err = execute(ctx, "go", "build", "-o", b.fulgur, "fulgur/cmd/fulgur")
	return b, err
}

// progress prints the current step.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
