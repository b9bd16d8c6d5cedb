// Switches measures the cost of tracing context switches for processes that make as many
// as possible: two processes on one CPU that send each other a byte, alone and under fulgur
// offcpu, libbpf-tools' offcputime and a bpftrace script with the same stacks. Each process waits in a
// function, so fulgur latency and fulgur slow measure its calls, one for each switch. See package storm.
//
// It needs root, gcc, taskset, chrt and Go, and tracefs for bpftrace. It leaves out
// tools that are not installed.
//
// Usage, at the root of the repository:
//
//	go run ./bench/switches [-rounds 3] [-operations 400000]
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"fulgur/bench/storm"
)

func main() {
	var operations int
	storm.Storm{
		Operation:    "operations",
		Event:        "switch",
		PerOperation: 2,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&operations, "operations", 400_000, "how often a byte goes to and fro")
		},
		Tools:   tools,
		Prepare: build,
		Load:    func(ctx context.Context, dir string) (float64, error) { return pipe(ctx, dir, operations) },
	}.Main()
}

// script makes bpftrace measure the same as offcputime.
const script = `tracepoint:sched:sched_switch {
	if (args->prev_pid != 0) {
		@start[args->prev_pid] = nsecs;
		@kernel[args->prev_pid] = kstack;
		@user[args->prev_pid] = ustack;
	}
	if (@start[args->next_pid] != 0) {
		@off[@kernel[args->next_pid], @user[args->next_pid], args->next_comm] = sum(nsecs - @start[args->next_pid]);
		delete(@start[args->next_pid]);
	}
}
END { clear(@start); clear(@kernel); clear(@user); clear(@off); }`

func tools(fulgur, dir string) []storm.Tool {
	calls := "uprobe:" + load(dir) + ":pass"
	return []storm.Tool{
		{Name: "fulgur offcpu", Argv: []string{fulgur, "offcpu", "-q", "-f"}},
		{Name: "fulgur offcpu -K", Argv: []string{fulgur, "offcpu", "-q", "-f", "-K"}},
		{Name: "fulgur latency", Argv: []string{fulgur, "latency", "-q", "-f", "-e", calls, "--max-rate", "1000000"}},
		{Name: "fulgur slow", Argv: []string{fulgur, "slow", "-q", "-f", "-e", calls, "--over", "20ms", "--max-rate", "1000000"}},
		{Name: "offcputime", Argv: []string{"offcputime", "60"}},
		{Name: "bpftrace", Argv: []string{"bpftrace", "-e", script}},
	}
}

//go:embed workload/pingpong.c
var source []byte

// build compiles the load.
func build(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-o", load(dir), "-x", "c", "-")
	cmd.Stdin = bytes.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the load: %w\n%s", err, out)
	}
	return nil
}

func load(dir string) string { return filepath.Join(dir, "pingpong") }

// pipe runs the two processes, with a real-time priority, so that other work of the
// machine does not interrupt them.
func pipe(ctx context.Context, dir string, operations int) (float64, error) {
	out, err := exec.CommandContext(ctx, "taskset", "-c", "0", "chrt", "-f", "1", load(dir), strconv.Itoa(operations)).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("run the load: %w\n%s", err, out)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}
