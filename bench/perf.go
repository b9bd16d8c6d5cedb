package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// perf finds perf. A run is perf record -g followed by perf script. The benchmark folds
// the stacks; the CPU time of folding does not count.
func perf() (tool, error) {
	program, err := exec.LookPath("perf")
	if err != nil {
		return tool{}, err
	}
	return tool{name: namePerf, version: version(program), run: func(ctx context.Context, j job) (cost, error) {
		data := filepath.Join(j.dir, "perf.data")
		argv := []string{
			program, "record", "-e", "cpu-clock", "-F", strconv.Itoa(j.Frequency), "-g", "-o", data,
			// The benchmark's clock.
			"-k", "CLOCK_MONOTONIC",
		}
		if j.OnePID {
			argv = append(argv, "-p", strconv.Itoa(j.pid))
		} else {
			argv = append(argv, "-a")
		}
		record, err := observe(ctx, append(argv, "--", "sleep", strconv.Itoa(j.seconds)), nil, nil, 0)
		if err != nil {
			return cost{}, err
		}
		return perfScript(ctx, program, data, record, j)
	}}, nil
}

// perfScript converts a job's data to folded stacks, and returns the cost of recording and
// conversion.
func perfScript(ctx context.Context, program, data string, record observed, j job) (c cost, err error) {
	out := filepath.Join(j.dir, "stacks")
	r, w, err := os.Pipe()
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	type folding struct {
		stacks perfStacks
		err    error
	}
	folded := make(chan folding, 1)
	go func() {
		stacks, err := foldPerf(r)
		if err == nil {
			err = writeFolded(out, stacks)
		}
		folded <- folding{stacks, err}
	}()
	argv := []string{program, "script", "-i", data, "-F", "comm,tid,time,ip,sym", "--ns", "--show-lost-events"}
	script, err := observe(ctx, argv, w, nil, 0)
	err = errors.Join(err, w.Close())
	f := <-folded
	if err := errors.Join(err, f.err); err != nil {
		return cost{}, err
	}
	if f.stacks.samples == 0 {
		return cost{}, errors.New("perf record took no sample")
	}
	record.firstRun = f.stacks.first
	c = record.cost(j.seconds)
	c.CPUAfter = script.cpu.Seconds()
	c.RSS, c.Anonymous = max(record.rss, script.rss), max(record.anonymous, script.anonymous)
	c.Start = (f.stacks.first - record.started).Seconds()
	c.Result = (monotonic() - f.stacks.last).Seconds()
	c.Samples, c.Lost = f.stacks.samples, f.stacks.lost
	return c, nil
}

// writeFolded writes stacks to the file at path.
func writeFolded(path string, stacks perfStacks) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	for stack, n := range stacks.counts {
		fmt.Fprintf(w, "%s %d\n", stack, n)
	}
	return w.Flush()
}
