// Scale counts what grows with the CPUs and the processes of a machine: file descriptors,
// memory and system calls of fulgur, while a number of processes sleep and others start
// and exit. It measures no times, so it can run in slow machines that have more CPUs; see
// scale_test.go.
//
// It needs root, gcc and Go. Usage, at the root of the repository:
//
//	go run ./bench/scale [-processes 100,1000,5000] [-forks 0,1000] [-- profile --unwind fp]
//
// The arguments after -- are fulgur's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fulgur/bench/program"
	"fulgur/internal/linux/perfevent"
)

func main() { program.Main("bench/scale", run) }

// defaultCommand is fulgur's command line without the program.
var defaultCommand = []string{"profile", "--no-inlines", "-q", "-f", "-o", "/dev/null"}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	processes := f.String("processes", "100,1000,5000", "`numbers` of processes that sleep")
	perSecond := f.String("forks", "0,1000", "`numbers` of programs that start each second")
	t := times{}
	f.DurationVar(&t.settle, "settle", 3*time.Second, "time to settle after sampling has begun")
	f.DurationVar(&t.observe, "observe", 10*time.Second, "time to count after that")
	if err := f.Parse(args); err != nil {
		return err
	}
	loads, err := parseLoads(*processes, *perSecond)
	if err != nil {
		return err
	}
	command := defaultCommand
	if f.NArg() > 0 {
		command = f.Args()
	}
	dir, err := os.MkdirTemp("", "fulgur-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fulgur, helper := filepath.Join(dir, "fulgur"), filepath.Join(dir, "processes")
	for _, build := range [][]string{
		{"go", "build", "-o", fulgur, "./cmd/fulgur"},
		{"gcc", "-O2", "-static", "-o", helper, "bench/scale/testdata/processes.c"},
	} {
		if out, err := exec.CommandContext(ctx, build[0], build[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(build, " "), err, out)
		}
	}
	results, err := measureAll(ctx, append([]string{fulgur}, command...), helper, loads, t)
	return errors.Join(err, write(os.Stdout, results))
}

// parseLoads returns each number of processes with each number of forks.
func parseLoads(processes, forks string) (loads []load, err error) {
	numbers := func(list string) (ns []int) {
		for part := range strings.SplitSeq(list, ",") {
			n, atoiErr := strconv.Atoi(part)
			if atoiErr != nil || n < 0 {
				err = errors.Join(err, fmt.Errorf("%q is not a list of numbers", list))
			}
			ns = append(ns, n)
		}
		return ns
	}
	for _, p := range numbers(processes) {
		for _, f := range numbers(forks) {
			loads = append(loads, load{p, f})
		}
	}
	return loads, err
}

// measureAll measures fulgur's command argv under each load.
func measureAll(ctx context.Context, argv []string, helper string, loads []load, t times) (results []result, err error) {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	for _, l := range loads {
		stop, err := l.start(ctx, helper)
		if err != nil {
			return results, err
		}
		r, err := measure(ctx, argv, len(online), t)
		stop()
		if err != nil {
			return results, err
		}
		r.Load = l
		results = append(results, r)
	}
	return results, nil
}

// columns of the table.
var columns = []struct {
	name  string
	value func(result) any
}{
	{"CPUs", func(r result) any { return r.CPUs }},
	{"processes", func(r result) any { return r.Load.Processes }},
	{"forks/s", func(r result) any { return r.Load.Forks }},
	{"whole machine", func(r result) any { return r.Forks }},
	{"perf events", func(r result) any { return r.Held.Files[perfEvents] }},
	{"files", func(r result) any { return r.Held.Files[regularFiles] }},
	{"other descriptors", func(r result) any { return r.Held.Files[others] }},
	{"rings KiB", func(r result) any { return r.Held.Rings >> 10 }},
	{"BPF KiB", func(r result) any { return r.Held.BPF.Memory >> 10 }},
	{"of these, per-CPU maps", func(r result) any { return r.Held.PerCPU >> 10 }},
	{"BPF programs", func(r result) any { return r.Held.BPF.Programs }},
	{"layouts", func(r result) any { return r.Held.Layouts }},
	{"anonymous KiB", func(r result) any { return r.Held.Anonymous >> 10 }},
	{"resident KiB", func(r result) any { return r.Held.Resident >> 10 }},
	{"threads", func(r result) any { return r.Held.Threads }},
	{"start: calls", func(r result) any { return r.Start[allCalls] }},
	{"openat", func(r result) any { return r.Start["openat"] }},
	{"read", func(r result) any { return r.Start["read"] }},
	{"bpf", func(r result) any { return r.Start["bpf"] }},
	{"perf_event_open", func(r result) any { return r.Start["perf_event_open"] }},
	{"epoll_ctl", func(r result) any { return r.Start["epoll_ctl"] }},
	{"IPIs", func(r result) any { return r.Start[interrupts] }},
	{"a second: calls", func(r result) any { return r.Steady[allCalls] }},
	{"read", func(r result) any { return r.Steady["read"] }},
	{"openat", func(r result) any { return r.Steady["openat"] }},
	{"bpf", func(r result) any { return r.Steady["bpf"] }},
	{"membarrier", func(r result) any { return r.Steady["membarrier"] }},
	{"epoll_pwait", func(r result) any { return r.Steady["epoll_pwait"] }},
	{"futex", func(r result) any { return r.Steady["futex"] }},
	{"context switches", func(r result) any { return r.Steady[switches] }},
	{"IPIs", func(r result) any { return r.Steady[interrupts] }},
	{"end: calls", func(r result) any { return r.End[allCalls] }},
	{"IPIs", func(r result) any { return r.End[interrupts] }},
}

// write writes a table as Markdown, with a column for each result.
func write(w io.Writer, results []result) error {
	var b strings.Builder
	for i, c := range columns {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, r := range results {
			fmt.Fprintf(&b, " %v |", c.value(r))
		}
		b.WriteByte('\n')
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("---:|", len(results)) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
