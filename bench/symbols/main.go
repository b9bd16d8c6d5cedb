// Symbols measures the time from the end of sampling to a flame graph with inlined
// functions, files and lines, for fulgur and for perf script with stackcollapse-perf.pl
// and flamegraph.pl of the FlameGraph tools. If these two are not in PATH, perf script
// runs alone, to perf's advantage.
//
// The load is ./bench's, built with debug information. The tools sample only the load,
// because perf script stops at files that addr2line cannot read, which other processes
// may have. The tools run in turn in each round. The measured time is the whole time of a
// tool except for sampling, so it includes the start.
//
// It needs root, Go, g++ and perf. Usage, at the root of the repository:
//
//	go run ./bench/symbols [-rounds 3] [-seconds 5] [-frequency 999]
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulgur/bench/program"
)

// The aims: end of sampling to flame graph, and its multiple of perf's.
const (
	resultLimit = time.Second
	perfLimit   = 0.1
)

// options holds the flags.
type options struct {
	rounds, seconds, frequency int
}

func main() {
	program.Main("bench/symbols", run)
}

func run(ctx context.Context, args []string) (err error) {
	var o options
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 3, "how often each tool runs; medians are shown")
	f.IntVar(&o.seconds, "seconds", 5, "how long each tool samples")
	f.IntVar(&o.frequency, "frequency", 999, "samples a second on each CPU")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.rounds < 1 || o.seconds < 1 || o.frequency < 1 {
		return errors.New("-rounds, -seconds and -frequency must be at least 1")
	}
	if os.Geteuid() != 0 {
		return errors.New("profiling needs root")
	}
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ours, theirs, err := findTools(ctx, dir)
	if err != nil {
		return err
	}
	loads, err := startLoads(ctx, dir)
	defer func() { err = errors.Join(err, loads.stop()) }()
	if err != nil {
		return err
	}
	results := map[string][]cost{}
	for round := range o.rounds {
		for _, t := range []tool{ours, theirs} {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, t.name)
			c, err := t.run(ctx, o, loads.pids())
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			results[t.name] = append(results[t.name], c)
		}
	}
	return write(os.Stdout, o, ours, theirs, results)
}

// write writes the comparison as Markdown.
func write(w io.Writer, o options, ours, theirs tool, results map[string][]cost) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, "%d Hz for %d s, medians of %d.\n\n", o.frequency, o.seconds, o.rounds)
	fmt.Fprintln(out, "| tool | end of sampling to flame graph s | CPU s | peak RSS MB |")
	fmt.Fprintln(out, "|---|---:|---:|---:|")
	for _, t := range []tool{ours, theirs} {
		m := median(results[t.name])
		fmt.Fprintf(out, "| %s | %.2f | %.2f | %.1f |\n", t.name, m.result.Seconds(), m.cpu.Seconds(), float64(m.rss)/(1<<20))
	}
	our, their := median(results[ours.name]).result, median(results[theirs.name]).result
	of := our.Seconds() / their.Seconds()
	fmt.Fprintln(out, "\n| aim | |\n|---|---|")
	fmt.Fprintf(out, "| flame graph within %v | %s %.2f s |\n", resultLimit, mark(our < resultLimit), our.Seconds())
	fmt.Fprintf(out, "| in a tenth of perf's time | %s %.2f× |\n", mark(of < perfLimit), of)
	return out.Flush()
}

func mark(met bool) string {
	if met {
		return "✓"
	}
	return "✗"
}

// median returns the median of each figure.
func median(runs []cost) cost {
	return cost{
		result: middle(runs, func(c cost) time.Duration { return c.result }),
		cpu:    middle(runs, func(c cost) time.Duration { return c.cpu }),
		rss:    middle(runs, func(c cost) int64 { return c.rss }),
	}
}

func middle[T cmp.Ordered](runs []cost, figure func(cost) T) T {
	figures := make([]T, len(runs))
	for i, c := range runs {
		figures[i] = figure(c)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// loads are running programs.
type loads []*exec.Cmd

// startLoads builds the programs of ./bench into dir, with debug information, and
// starts those that this machine can run. The caller must stop the loads even after
// an error.
func startLoads(ctx context.Context, dir string) (l loads, err error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, argv := range [][]string{
		{"g++", "-O2", "-g", "-fno-omit-frame-pointer", "-o", in("recurse"), "bench/workload/recurse.cpp"},
		{"go", "build", "-o", in("goload"), "fulgur/bench/workload/goload"},
	} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	const seconds = "3600"
	for _, argv := range [][]string{
		{in("recurse"), seconds},
		{in("goload"), seconds},
		{"python3", "bench/workload/objects.py", seconds},
	} {
		program, err := exec.LookPath(argv[0])
		if err != nil {
			fmt.Fprintf(os.Stderr, "the load has no %s: %v\n", argv[0], err)
			continue
		}
		cmd := exec.CommandContext(ctx, program, argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return l, fmt.Errorf("start load %s: %w", program, err)
		}
		l = append(l, cmd)
	}
	time.Sleep(500 * time.Millisecond) // an interpreter's start is a different load
	return l, nil
}

// pids returns the process IDs as tools read them.
func (l loads) pids() string {
	var pids []string
	for _, cmd := range l {
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
	}
	return strings.Join(pids, ",")
}

func (l loads) stop() error {
	var errs []error
	for _, cmd := range l {
		errs = append(errs, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}
	return errors.Join(errs...)
}
