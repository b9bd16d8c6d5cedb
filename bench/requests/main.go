// Requests measures the cost of tracing disk requests for a program that makes as many as
// possible: fio makes random reads of 4 KiB from a disk in memory (a loop device of a
// file in /dev/shm), alone and under fulgur blockio, libbpf-tools' biolatency and
// biosnoop, and bpftrace, with a histogram and with the stacks that fulgur takes. See
// package storm.
//
// It needs root, fio, losetup and Go, and for bpftrace tracefs. It leaves out tools that
// are not installed.
// Usage, at the root of the repository:
//
//	go run ./bench/requests [-rounds 3] [-requests 500000]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"fulgur/bench/storm"
)

func main() {
	var requests int
	storm.Storm{
		Operation:    "requests",
		Event:        "request",
		PerOperation: 1,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&requests, "requests", 500_000, "how many requests are made")
		},
		Tools: tools,
		Load:  func(ctx context.Context, _ string) (float64, error) { return randomReads(ctx, requests) },
	}.Main()
}

// Scripts for bpftrace: histogram measures the same as biolatency, stacks the same as
// fulgur.
const (
	histogram = `tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete /@start[args->dev, args->sector]/ {
	@usecs[args->dev] = hist((nsecs - @start[args->dev, args->sector]) / 1000);
	delete(@start[args->dev, args->sector]);
}
END { clear(@start); clear(@usecs); }`

	stacks = `tracepoint:block:block_io_start {
	@start[args->dev, args->sector] = nsecs;
	@kernel[args->dev, args->sector] = kstack;
	@user[args->dev, args->sector] = ustack;
}
tracepoint:block:block_rq_complete /@start[args->dev, args->sector]/ {
	@ns[@kernel[args->dev, args->sector], @user[args->dev, args->sector]] = sum(nsecs - @start[args->dev, args->sector]);
	@usecs[args->dev] = hist((nsecs - @start[args->dev, args->sector]) / 1000);
	delete(@start[args->dev, args->sector]);
	delete(@kernel[args->dev, args->sector]);
	delete(@user[args->dev, args->sector]);
}
END { clear(@start); clear(@kernel); clear(@user); clear(@ns); clear(@usecs); }`
)

func tools(fulgur, _ string) []storm.Tool {
	return []storm.Tool{
		{Name: "fulgur blockio", Argv: []string{fulgur, "blockio", "-q", "-f"}},
		{Name: "fulgur blockio -K", Argv: []string{fulgur, "blockio", "-q", "-f", "-K"}},
		{Name: "biolatency", Argv: []string{"biolatency", "-D"}},
		{Name: "biosnoop", Argv: []string{"biosnoop"}},
		{Name: "bpftrace, histogram", Argv: []string{"bpftrace", "-e", histogram}},
		{Name: "bpftrace, stacks", Argv: []string{"bpftrace", "-e", stacks}},
	}
}

// diskSize is the size of the disk in memory, in bytes.
const diskSize = 256 << 20

// randomReads reads from a new disk in memory.
func randomReads(ctx context.Context, requests int) (rate float64, err error) {
	file, err := os.CreateTemp("/dev/shm", "fulgur-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	// Write it, so that reads do not hit a hole.
	if _, err := file.Write(make([]byte, diskSize)); err != nil {
		return 0, err
	}
	device, err := exec.CommandContext(ctx, "losetup", "--find", "--show", file.Name()).Output()
	if err != nil {
		return 0, fmt.Errorf("losetup: %w", err)
	}
	disk := strings.TrimSpace(string(device))
	defer func() { err = errors.Join(err, exec.Command("losetup", "--detach", disk).Run()) }()
	out, err := exec.CommandContext(ctx, "fio", "--name=reads", "--filename="+disk, "--readonly", "--rw=randread",
		"--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=32", "--norandommap", "--randrepeat=1",
		fmt.Sprintf("--number_ios=%d", requests), fmt.Sprintf("--io_size=%d", requests*4096), "--output-format=json").Output()
	if err != nil {
		return 0, fmt.Errorf("fio: %w", err)
	}
	var report struct {
		Jobs []struct {
			Read struct {
				IOPS float64
			}
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, fmt.Errorf("fio: %w", err)
	}
	if len(report.Jobs) != 1 || report.Jobs[0].Read.IOPS == 0 {
		return 0, fmt.Errorf("fio reports no rate: %s", out)
	}
	return report.Jobs[0].Read.IOPS, nil
}
