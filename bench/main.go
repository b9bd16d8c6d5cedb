// Bench compares the cost of fulgur with perf record -g, bpftrace and bcc's profile (of
// libbpf-tools, or else bpfcc-tools) on this machine under the same load, and prints the
// comparison as Markdown.
//
// All tools sample cpu-clock and walk frame pointers, at the same frequency and for the
// same time, in turn in each round. fulgur also runs with unwind tables, its default, which
// the other tools do not support. Tools that are not in PATH are listed and left out.
// bpftrace runs in the first round only, because it takes more time to name its stacks than
// all others together.
//
// Short processes are a separate load, which runs three times as long. fulgur agent always
// runs for 45 s. The benchmark needs root, Go and g++, and takes less than twenty minutes.
// Times are meaningful only on an idle machine.
//
// Usage, at the root of the repository:
//
//	go run ./bench [-scenarios system-4999,pid-99] [-rounds 3] [-seconds 5]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/bench/program"
)

// options holds the flags.
type options struct {
	scenarios []scenario
	tools     []string
	rounds    int
	seconds   int
	growth    int
	json      string
}

func main() {
	program.Main("bench", run)
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("profiling the whole system and reading BPF statistics need root")
	}
	// Until this is closed, the kernel measures the run time of BPF programs, regardless
	// of the sysctl kernel.bpf_stats_enabled.
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable run time statistics of BPF programs: %w", err)
	}
	defer func() { err = errors.Join(err, stats.Close()) }()

	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	tools, notes, err := findTools(ctx, dir, o.tools)
	if err != nil {
		return err
	}
	if len(tools) == 0 {
		return errors.New("there is no tool to measure: " + strings.Join(notes, "; "))
	}
	loads, missing, err := buildLoads(ctx, dir)
	if err != nil {
		return err
	}
	c := comparison{
		Machine: describeMachine(tools),
		Seconds: o.seconds,
		Growth:  o.growth,
		Notes:   append(notes, missing...),
	}
	if err := c.measure(ctx, o, tools, loads, dir); err != nil {
		return err
	}
	if o.json != "" {
		if err := c.writeJSON(o.json); err != nil {
			return err
		}
	}
	return errors.Join(c.write(os.Stdout), c.failure())
}

// parse reads the command line.
func parse(args []string) (options, error) {
	var names []string
	for _, s := range allScenarios {
		names = append(names, s.String())
	}
	f := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	scenarios := f.String("scenarios", strings.Join(names, ","), "what to measure, comma-separated")
	tools := f.String("tools", strings.Join(toolNames, ","), "which tools to measure, comma-separated")
	var o options
	f.IntVar(&o.rounds, "rounds", 3, "how often each tool runs in each scenario; medians are shown")
	f.IntVar(&o.seconds, "seconds", 5, "how long each tool samples")
	f.IntVar(&o.growth, "growth", 30, "how long the run is that shows whether memory grows, in seconds; 0: no such run")
	f.StringVar(&o.json, "json", "", "write all runs to this file, too")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	if f.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.rounds < 1 || o.seconds < 1 || o.growth < 0 {
		return options{}, errors.New("-rounds and -seconds must be at least 1, -growth at least 0")
	}
	for _, name := range strings.Split(*scenarios, ",") {
		s, err := parseScenario(name)
		if err != nil {
			return options{}, err
		}
		o.scenarios = append(o.scenarios, s)
	}
	o.tools = strings.Split(*tools, ",")
	return o, nil
}
