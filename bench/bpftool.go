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
)

// fulgur returns the measured tool, run from the path program. It walks user stacks by a
// method of --unwind.
func fulgur(name, version, program, unwind string) tool {
	return tool{name: name, version: version, run: func(ctx context.Context, j job) (cost, error) {
		// The peers name functions only; bench/symbols compares inlined functions, files
		// and lines.
		argv := []string{program, "profile", "--no-inlines", "--unwind", unwind, "-e", "cpu-clock", "-F", strconv.Itoa(j.Frequency), "-f"}
		if j.OnePID {
			argv = append(argv, "-p", strconv.Itoa(j.pid))
		}
		return runBPF(ctx, j, append(argv, strconv.Itoa(j.seconds)), sumFolded)
	}}
}

// stackStorage is the number of stacks that bcc can store. It drops a stack whose hash falls into the
// same slot as another's, and dropping takes less time than storing. With the default of 1024, it drops
// a quarter of the samples of the first load at 4999 Hz; with this number, less than 1 %, and its maps
// take 131 MB.
const stackStorage = 131072

// bcc finds bcc's profile: libbpf-tools' version, or else the Python version under
// Debian's name.
func bcc() (tool, error) {
	for _, name := range []string{"profile", "profile-bpfcc"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// Other programs may have this common name.
		help, err := exec.Command(program, "--help").CombinedOutput()
		if err != nil || !strings.Contains(string(help), "--stack-storage-size") {
			continue
		}
		shown := nameBCC
		if name == "profile-bpfcc" {
			shown += " (Python)"
		}
		return tool{name: shown, version: fmt.Sprintf("bcc's %s with --stack-storage-size %d", version(program), stackStorage), run: func(ctx context.Context, j job) (cost, error) {
			argv := []string{program, "-F", strconv.Itoa(j.Frequency), "-f", "--stack-storage-size", strconv.Itoa(stackStorage)}
			if j.OnePID {
				argv = append(argv, "-p", strconv.Itoa(j.pid))
			}
			return runBPF(ctx, j, append(argv, strconv.Itoa(j.seconds)), sumFolded)
		}}, nil
	}
	return tool{}, errors.New("bcc's profile (libbpf-tools, or profile-bpfcc) is not in PATH")
}

// bpftrace finds bpftrace.
func bpftrace() (tool, error) {
	program, err := exec.LookPath("bpftrace")
	if err != nil {
		return tool{}, err
	}
	return tool{name: "bpftrace", version: version(program), once: true, run: func(ctx context.Context, j job) (cost, error) {
		of := "pid != 0"
		if j.OnePID {
			of = fmt.Sprintf("pid == %d", j.pid)
		}
		script := fmt.Sprintf("profile:hz:%d /%s/ { @[comm, kstack(127), ustack(127)] = count(); } interval:s:%d { exit(); }",
			j.Frequency, of, j.seconds)
		return runBPF(ctx, j, []string{program, "-q", "-e", script}, sumBPFTrace)
	}}, nil
}

// runBPF runs a tool that samples with BPF and writes its stacks to standard
// output, and reads them with sum.
func runBPF(ctx context.Context, j job, argv []string, sum sumFunc) (c cost, err error) {
	out, err := os.Create(filepath.Join(j.dir, "stacks"))
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	o, err := observe(ctx, argv, out, newBPFWatch, 0)
	if err != nil {
		return cost{}, err
	}
	if o.firstRun == 0 {
		return cost{}, fmt.Errorf("%s: none of its BPF programs ran\n%s", argv[0], o.stderr)
	}
	c = o.cost(j.seconds)
	c.Start = (o.firstRun - o.started).Seconds()
	// All these tools sleep while they sample; the rest of their time is the time to the
	// result. With cpu-clock, the first sample comes one interval after the start of
	// sampling.
	sampling := o.firstRun.Seconds() - 1/float64(j.Frequency)
	c.Result = o.ended.Seconds() - sampling - float64(j.seconds)
	c.Lost = reportedLost(o.stderr)
	if _, err := out.Seek(0, 0); err != nil {
		return cost{}, err
	}
	counted, err := sum(out)
	if err != nil {
		return cost{}, fmt.Errorf("output of %s: %w", argv[0], err)
	}
	c.Samples, c.Stackless = counted.samples, counted.stackless
	return c, nil
}
