package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The intervals of polling a tool while it runs: for its first sample until there is one,
// and for its peak memory all the time.
const (
	startPoll  = time.Millisecond
	memoryPoll = 5 * time.Millisecond
)

// runLimit is the time limit of a tool's run.
const runLimit = 3 * time.Minute

// observed holds the observations of a program from its start to its end. Points in time
// are on CLOCK_MONOTONIC.
type observed struct {
	// firstRun is the first run of a BPF program, or the first sample of another tool; 0 if unknown.
	started, firstRun, ended time.Duration
	cpu                      time.Duration // user and system
	rss, anonymous           uint64        // peaks, bytes
	maps                     uint64        // bytes
	bpf                      time.Duration // run time of its BPF programs
	runs                     uint64        // runs of its perf_event programs
	stderr                   string
	used                     []used
}

// used is the CPU time of a program at a point in time.
type used struct{ at, cpu time.Duration }

// usedBy returns the program's CPU time at a point in time.
func (o observed) usedBy(at time.Duration) time.Duration {
	i, _ := slices.BinarySearchFunc(o.used, at, func(u used, at time.Duration) int { return cmp.Compare(u.at, at) })
	if i == len(o.used) {
		return o.cpu
	}
	return o.used[i].cpu
}

// settled is the time from a program's start to its steady state.
const settled = 2 * time.Second

// steady returns the share of a CPU that the program used in its steady state, or 0 if that
// was too short. The steady state begins and ends at the given times after the start.
func (o observed) steady(begin, end time.Duration) float64 {
	from, to := o.started+begin, o.started+end
	if to-from < time.Second {
		return 0
	}
	return (o.usedBy(to) - o.usedBy(from)).Seconds() / (to - from).Seconds()
}

// cost returns the raw figures of a program that sampled for the given number of seconds.
func (o observed) cost(seconds int) cost {
	sampled := time.Duration(seconds) * time.Second
	c := cost{
		CPU: o.cpu.Seconds(), RSS: o.rss, Anonymous: o.anonymous, Maps: o.maps, BPF: o.bpf.Seconds(), Runs: o.runs,
		Steady: o.steady(settled, sampled),
	}
	if o.firstRun != 0 {
		c.StartCPU = o.usedBy(o.firstRun).Seconds()
		c.EndCPU = (o.cpu - o.usedBy(o.firstRun+sampled)).Seconds()
		c.Running = (c.CPU - c.StartCPU) / sampled.Seconds()
	}
	return c
}

// observe runs argv until it exits, with standard output to out. newWatch returns a watch
// on its BPF programs, nil if it has none.
//
// If lasts is not 0, the program runs until it is asked to exit, which is that long after its
// first sample.
func observe(ctx context.Context, argv []string, out *os.File, newWatch func(pid int) *bpfWatch, lasts time.Duration) (o observed, err error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out != nil {
		cmd.Stdout = out
	}
	// The capacity of bpftrace's map: a few seconds at 4999 Hz have more stacks than its
	// default.
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
	err = poll(cmd.Process.Pid, watch, &o, exited, lasts)
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

// poll polls the process until exited reports that it has exited. See [observe] for lasts.
//
// It reads the peak memory from /proc while the process runs, not from its resource usage
// at the end: that includes the memory of the parent process until exec.
func poll(pid int, watch *bpfWatch, o *observed, exited <-chan error, lasts time.Duration) error {
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
		rss, anonymous := memory(pid)
		o.rss, o.anonymous = max(o.rss, rss), max(o.anonymous, anonymous)
		if cpu := cpuTime(pid); cpu > 0 {
			o.used = append(o.used, used{monotonic(), cpu})
		}
		if lasts > 0 && o.firstRun != 0 && monotonic() >= o.firstRun+lasts {
			lasts = 0
			if err := unix.Kill(pid, unix.SIGTERM); err != nil {
				return err
			}
		}
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

// memory returns the peak resident memory of process pid since its exec, and its current
// anonymous memory, in bytes; 0 when it is gone.
func memory(pid int) (peak, anonymous uint64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	field := func(name string) uint64 {
		_, value, _ := strings.Cut(string(status), "\n"+name+":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			return 0 // the process has just exited
		}
		kilobytes, _ := strconv.ParseUint(fields[0], 10, 64) // 0 is never a peak
		return kilobytes << 10
	}
	return field("VmHWM"), field("RssAnon")
}

// cpuTime returns the CPU time of the current threads of process pid, 0 when it is gone. No
// thread of the tools ends before its process.
func cpuTime(pid int) (sum time.Duration) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err == nil {
			sum += time.Duration(ns)
		}
	}
	return sum
}

// monotonic returns the time of CLOCK_MONOTONIC, which perf is configured to use.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("CLOCK_MONOTONIC: %v", err)) // every Linux has it
	}
	return time.Duration(syscall.TimespecToNsec(syscall.Timespec(ts)))
}
