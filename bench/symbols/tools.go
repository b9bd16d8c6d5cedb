package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulgur/bench/program"
)

// runLimit is the time limit of a program: perf may run addr2line for hours.
const runLimit = 10 * time.Minute

// cost is the cost of a tool.
type cost struct {
	result time.Duration // from the end of sampling to the flame graph
	cpu    time.Duration // user and system, with children
	rss    int64         // peak of one program, in bytes
}

// tool makes flame graphs.
type tool struct {
	name string
	// run samples the processes pids, comma-separated.
	run func(ctx context.Context, o options, pids string) (cost, error)
}

// findTools builds fulgur into dir, and finds perf and its scripts.
func findTools(ctx context.Context, dir string) (ours, theirs tool, err error) {
	built, err := program.Build(ctx, dir)
	if err != nil {
		return ours, theirs, err
	}
	ours = tool{"fulgur", func(ctx context.Context, o options, pids string) (cost, error) {
		c, err := execute(ctx, "", built, "profile", "-p", pids, "-F", strconv.Itoa(o.frequency),
			"-o", filepath.Join(dir, "flame.html"), strconv.Itoa(o.seconds))
		c.result -= time.Duration(o.seconds) * time.Second
		return c, err
	}}

	perf, err := exec.LookPath("perf")
	if err != nil {
		return ours, theirs, err
	}
	name := "perf script --inline"
	var scripts []string
	collapse, noCollapse := exec.LookPath("stackcollapse-perf.pl")
	flamegraph, noFlamegraph := exec.LookPath("flamegraph.pl")
	if noCollapse == nil && noFlamegraph == nil {
		scripts = []string{collapse, flamegraph}
		name += ", stackcollapse-perf.pl, flamegraph.pl"
	}
	return ours, tool{name, func(ctx context.Context, o options, pids string) (cost, error) {
		data, stacks := filepath.Join(dir, "perf.data"), filepath.Join(dir, "stacks")
		c, err := execute(ctx, "", perf, "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(o.frequency), "-p", pids, "-g",
			"-o", data, "--", "sleep", strconv.Itoa(o.seconds))
		c.result -= time.Duration(o.seconds) * time.Second
		if err != nil {
			return c, err
		}
		steps := [][]string{{perf, "script", "-i", data, "--inline", "-F", "comm,pid,tid,time,event,ip,sym,dso,srcline"}}
		in := stacks
		for _, script := range scripts {
			steps = append(steps, []string{script, in})
			in += "+"
		}
		out := stacks
		for _, argv := range steps {
			step, err := execute(ctx, out, argv...)
			if err != nil {
				return c, err
			}
			c.result += step.result
			c.cpu += step.cpu
			c.rss = max(c.rss, step.rss)
			out += "+"
		}
		return c, nil
	}}, nil
}

// execute runs a program, its standard output to the file at out unless that
// is empty, and returns its whole duration as result.
func execute(ctx context.Context, out string, argv ...string) (c cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if out == "" {
		out = os.DevNull
	}
	f, err := os.Create(out)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	cmd.Stdout = f
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return c, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), errors.Join(err, ctx.Err()), &stderr)
	}
	c.result = time.Since(start)
	c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.rss = usage.Maxrss << 10
	}
	return c, nil
}
