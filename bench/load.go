package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed workload/recurse.cpp workload/objects.py workload/churn.sh
var sources embed.FS

// load is a program that keeps one CPU busy. Its last argument is the number of seconds.
type load struct {
	name string
	argv []string
	// churn marks the load of scenarios with Churn, which have no other load.
	churn bool
}

// of returns the loads of a scenario.
func (s scenario) of(loads []load) []load {
	own := slices.DeleteFunc(slices.Clone(loads), func(l load) bool { return l.churn != s.Churn })
	if s.OnePID {
		return own[:1]
	}
	return own
}

// buildLoads builds the loads into dir, and returns the names of loads that this machine
// cannot run. The scenarios of one process profile the first load.
func buildLoads(ctx context.Context, dir string) (loads []load, missing []string, err error) {
	for _, name := range []string{"recurse.cpp", "objects.py", "churn.sh"} {
		text, err := fs.ReadFile(sources, "workload/"+name)
		if err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, nil, err
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	builds := []struct{ name, program, compiler string }{
		{"C++ with frame pointers", in("recurse-fp"), "-fno-omit-frame-pointer"},
		{"C++ without frame pointers", in("recurse-nofp"), "-fomit-frame-pointer"},
	}
	for _, b := range builds {
		if err := build(ctx, "g++", "-O2", b.compiler, "-o", b.program, in("recurse.cpp")); err != nil {
			return nil, nil, err
		}
		loads = append(loads, load{name: b.name, argv: []string{b.program}})
	}
	loads = append(loads, load{name: "short processes", argv: []string{"sh", in("churn.sh")}, churn: true})
	if err := build(ctx, "go", "build", "-o", in("goload"), "fulgur/bench/workload/goload"); err != nil {
		return nil, nil, err
	}
	loads = append(loads, load{name: "Go", argv: []string{in("goload")}})
	// Prefer the distribution's interpreter: wrappers of version managers cost time and
	// change the process.
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if python, err := exec.LookPath(name); err == nil {
			return append(loads, load{name: "CPython", argv: []string{python, in("objects.py")}}), nil, nil
		}
	}
	return loads, []string{"python3 is missing: the load has no CPython"}, nil
}

// build runs a compiler.
func build(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", argv, err, out)
	}
	return nil
}

// running holds the started loads.
type running []*exec.Cmd

// loadLimit is the time after which loads exit by themselves.
const loadLimit = time.Hour

// warmUp is the time that loads run before a measurement: an interpreter's start is a
// different load than its work.
const warmUp = 500 * time.Millisecond

// start starts loads and lets them warm up. They are killed when the calling thread
// exits.
func start(ctx context.Context, loads []load) (running, error) {
	var r running
	for _, l := range loads {
		args := slices.Concat(l.argv[1:], []string{strconv.Itoa(int(loadLimit.Seconds()))})
		cmd := exec.CommandContext(ctx, l.argv[0], args...)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("start load %s: %w", l.name, err), r.stop())
		}
		r = append(r, cmd)
	}
	time.Sleep(warmUp)
	return r, nil
}

// favor raises the priority of the loads, so that each has a CPU if there are enough,
// even on a busy machine: the number of samples of a process depends on it.
func (r running) favor() error {
	for _, cmd := range r {
		if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, -20); err != nil {
			return fmt.Errorf("raise the priority of load %s: %w", cmd.Path, err)
		}
	}
	return nil
}

// stop ends the loads. It returns an error if a load has exited already, since then the load
// was not the same for all tools.
func (r running) stop() error {
	var errs []error
	for _, cmd := range r {
		if err := cmd.Process.Kill(); err != nil {
			errs = append(errs, fmt.Errorf("end load %s: %w", cmd.Path, err))
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			errs = append(errs, err)
		}
		if status, ok := cmd.ProcessState.Sys().(unix.WaitStatus); ok && status.Exited() {
			errs = append(errs, fmt.Errorf("load %s exited too early: %s", cmd.Path, cmd.ProcessState))
		}
	}
	return errors.Join(errs...)
}
