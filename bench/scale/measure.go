package main

import (
	"bufio"
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
)

// load describes the other programs on the machine.
type load struct {
	Processes int // that sleep
	Forks     int // per second
}

// start runs testdata/processes.c, and returns once all processes exist. The load ends with the calling
// thread, so the caller must lock its goroutine to its thread.
func (l load) start(ctx context.Context, program string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, strconv.Itoa(l.Processes), strconv.Itoa(l.Forks))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // killed
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return nil, fmt.Errorf("start %d processes: %q: %w", l.Processes, line, err)
	}
	return stop, nil
}

// times are the lengths of a run's phases: it settles after sampling has begun, and then it is
// observed.
type times struct{ settle, observe time.Duration }

// result is the counts and holdings of a run of fulgur.
type result struct {
	Load               load
	CPUs               int    // with events that sample
	Start, Steady, End counts // Steady: per second
	Forks              uint64 // of processes and threads on the whole machine, per second of Steady
	Held               holdings
}

// measure runs fulgur's command argv under a load. Its goroutine must be locked to its
// thread, from which nothing but loads has been started.
func measure(ctx context.Context, argv []string, cpus int, t times) (r result, err error) {
	c, err := openCounters()
	if err != nil {
		return r, err
	}
	defer c.close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return r, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	r, err = follow(cmd.Process, c, cpus, t, exited)
	if err != nil {
		return r, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), errors.Join(err, ctx.Err()), stderr.String())
	}
	return r, nil
}

// errEnded means that a run ended before its interrupt.
var errEnded = errors.New("ended early")

// follow reads the counters at the boundaries of the phases.
func follow(p *os.Process, c counters, cpus int, t times, exited <-chan error) (r result, err error) {
	pause := func(d time.Duration) error {
		select {
		case err := <-exited:
			return errors.Join(errEnded, err)
		case <-time.After(d):
			return nil
		}
	}
	r.CPUs = cpus
	for r.Start[enabledEvents] < uint64(cpus) {
		if err := pause(10 * time.Millisecond); err != nil {
			return r, err
		}
		if r.Start, err = c.read(); err != nil {
			return r, err
		}
	}
	if err := pause(t.settle); err != nil {
		return r, err
	}
	began := time.Now()
	before, err := c.read()
	if err != nil {
		return r, err
	}
	forked, err := forks()
	if err != nil {
		return r, err
	}
	if err := pause(t.observe); err != nil {
		return r, err
	}
	after, err := c.read()
	if err != nil {
		return r, err
	}
	now, err := forks()
	if err != nil {
		return r, err
	}
	rate := func(n uint64) uint64 { return uint64(float64(n)/time.Since(began).Seconds() + 0.5) }
	r.Forks, r.Steady = rate(now-forked), after.sub(before)
	for name, n := range r.Steady {
		r.Steady[name] = rate(n)
	}
	if r.Held, err = hold(p.Pid); err != nil {
		return r, err
	}
	if after, err = c.read(); err != nil {
		return r, err
	}
	if err := p.Signal(os.Interrupt); err != nil {
		return r, err
	}
	if err := <-exited; err != nil {
		return r, err
	}
	end, err := c.read()
	r.End = end.sub(after)
	return r, err
}

// forks returns the number of forks since the machine started.
func forks() (uint64, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(stat), "\nprocesses ")
	value, _, _ = strings.Cut(value, "\n")
	return strconv.ParseUint(value, 10, 64)
}
