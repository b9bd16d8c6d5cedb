// Bolt measures the value of profiles: how much faster llvm-bolt makes the sqlite3 shell
// with a profile from
//
//   - its own instrumentation, which counts every branch,
//   - fulgur bolt --branches counting for a minute, as for a process in production,
//   - fulgur bolt --branches stepping, until the profile is sufficient,
//   - the same for a minute at an overhead of 10 %, as for a process in production,
//   - fulgur bolt --basic, samples of cpu-clock for a minute.
//
// sqlite is built from Debian's source with gcc -O2 and --emit-relocs. It runs scripts of
// small transactions and queries: one for the profiles and another one for the
// measurement. The binaries run in turn in each round, and must all print the same. Bolt
// also measures the cost of stepping for the stepped process: the duration of a script
// with and without stepping, in turn.
//
// It needs root, apt-get and the packages that test/install-deps.sh installs for it, and
// takes about ten minutes. Usage, at the root of the repository:
//
//	go run ./bench/bolt [-rounds 9] [-seconds 60] [-dir build/bench-bolt] [-ways instrumented,counting,minute,basic]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fulgur/bench/program"
)

// options holds the flags.
type options struct {
	rounds  int
	seconds int
	dir     string
	only    []string // ways by the names of their files; none means all
}

func main() {
	program.Main("bench/bolt", run)
}

func run(ctx context.Context, args []string) error {
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
	r := report{machine: describeMachine(ctx), rounds: o.rounds}
	for _, w := range b.ways() {
		progress("profile: %s", w.name)
		v, err := b.build(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		r.variants = append(r.variants, v)
	}
	if err := b.race(ctx, o.rounds, r.variants); err != nil {
		return err
	}
	if len(o.only) == 0 {
		if r.slowdown, err = b.slowdown(ctx, o.rounds); err != nil {
			return err
		}
	}
	return r.write(os.Stdout)
}

// parse reads the command line.
func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 9, "how often each binary runs; medians are shown")
	f.IntVar(&o.seconds, "seconds", 60, "how long profiles take that have a time")
	f.StringVar(&o.dir, "dir", filepath.Join("build", "bench-bolt"), "`folder` for sqlite's source and all that is made of it")
	f.Func("ways", "only these `ways`, separated by commas: instrumented, counting, sufficient, minute, basic; without the cost of stepping", func(s string) error {
		o.only = strings.Split(s, ",")
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

// bench holds the programs and scripts of the measurements.
type bench struct {
	options
	fulgur   string // program
	sqlite   string // the binary to optimize
	training string // scripts
	measured string
}

// prepare builds fulgur and sqlite and writes the scripts.
func prepare(ctx context.Context, o options) (*bench, error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	o.dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b := &bench{options: o, fulgur: filepath.Join(dir, "fulgur"), sqlite: filepath.Join(dir, "sqlite3")}
	if _, err := execute(ctx, "go", "build", "-o", b.fulgur, "fulgur/cmd/fulgur"); err != nil {
		return nil, err
	}
	if err := buildSQLite(ctx, dir, b.sqlite); err != nil {
		return nil, fmt.Errorf("build sqlite: %w", err)
	}
	b.training, b.measured = filepath.Join(dir, "training.sql"), filepath.Join(dir, "measured.sql")
	return b, errors.Join(writeScript(b.training, 1), writeScript(b.measured, 2))
}

// execute runs a program to its end, and returns its standard output and standard error
// together.
func execute(ctx context.Context, argv ...string) (string, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out), nil
}

// progress prints the current step.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
