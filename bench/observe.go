package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How often a tool is looked at while it runs: for its first sample until that
// is seen, and for the peak of its memory all the time.
const (
	startPoll  = time.Millisecond
	memoryPoll = 5 * time.Millisecond
)

// runLimit is when a tool's run is given up.
const runLimit = 3 * time.Minute

// observed is what was seen of a program from its start to its end. Points in
// time are CLOCK_MONOTONIC's.
type observed struct {
	started, firstRun, ended time.Duration // firstRun: 0 if it ran no BPF program
	cpu                      time.Duration // user and system
	rss                      uint64        // peak, bytes
	maps                     uint64        // bytes
	bpf                      time.Duration // run time of its BPF programs
	runs                     uint64        // of its perf_event programs
	stderr                   string
}

// cost returns the figures that need no interpretation.
func (o observed) cost() cost {
	return cost{CPU: o.cpu.Seconds(), RSS: o.rss, Maps: o.maps, BPF: o.bpf.Seconds(), Runs: o.runs}
}

// observe runs argv, standard output to out, until it ends. newWatch makes the
// watch on its BPF programs, nil if it has none.
func observe(ctx context.Context, argv []string, out *os.File, newWatch func(pid int) *bpfWatch) (o observed, err error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out != nil {
		cmd.Stdout = out
	}
	// The stacks that bpftrace's map holds: its default is less than a few
	// seconds of 4999 Hz have.
	cmd.Env = append(os.Environ(), "BPFTRACE_MAP_KEYS_MAX=65536")
	o.started = monotonic()
	if err := cmd.Start(); err != nil {
		return o, err
	}
	var watch *bpfWatch
	if newWatch != nil {
		watch = newWatch(cmd.Process.Pid)
		defer func() { err = errors.Join(err, watch.close()) }()
	}
	exited := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		o.ended = monotonic()
		exited <- err
	}()
	err = poll(cmd.Process.Pid, watch, &o, exited)
	o.stderr = stderr.String()
	if err != nil {
		return o, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), errors.Join(err, ctx.Err()), o.stderr)
	}
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if watch != nil {
		o.maps = watch.maps
		o.bpf, o.runs, err = watch.totals()
	}
	return o, err
}

// poll looks at the process until exited says that it ended.
//
// The peak of its memory is read from /proc all along, not from its resource
// usage: there, Linux counts the memory of the process that started it, too,
// until exec.
func poll(pid int, watch *bpfWatch, o *observed, exited <-chan error) error {
	interval := memoryPoll
	if watch != nil {
		interval = startPoll
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	nextScan := time.Duration(0)
	for {
		select {
		case err := <-exited:
			return err
		case <-ticker.C:
		}
		o.rss = max(o.rss, peakRSS(pid))
		if watch == nil || monotonic() < nextScan {
			continue
		}
		watch.scan()
		if o.firstRun != 0 {
			nextScan = monotonic() + scanInterval
		} else if watch.sampling() {
			o.firstRun = monotonic()
			ticker.Reset(memoryPoll)
		}
	}
}

// peakRSS returns the most resident memory that process pid has had since its
// exec, in bytes, and 0 when it is gone.
func peakRSS(pid int) uint64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, value, _ := strings.Cut(string(status), "\nVmHWM:")
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return 0 // a process without memory: it has just ended
	}
	kilobytes, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

// monotonic returns the time of CLOCK_MONOTONIC, the one that perf is told to
// use.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("CLOCK_MONOTONIC: %v", err)) // every Linux has it
	}
	return time.Duration(syscall.TimespecToNsec(syscall.Timespec(ts)))
}
