package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// job is one run of a tool.
type job struct {
	scenario
	seconds int
	pid     int    // the process to sample, in a scenario with OnePID
	dir     string // for files
}

// cost holds the cost and the result of a tool's run. Times are in seconds, memory is in
// bytes.
type cost struct {
	// Round is the round of the run.
	Round int
	// Samples is the number of samples in the result, without samples of idle CPUs.
	Samples uint64
	// Lost is the number of lost samples that the tool reports, and Stackless the number
	// of samples in the result that have no stack.
	Lost, Stackless uint64
	// CPU is the tool's user and system time, and CPUAfter the time of a second
	// program that converts the tool's output to stacks.
	CPU, CPUAfter float64
	// Start is the time from the tool's start to its first sample, and Result the time
	// from the last sample to the written stacks.
	Start, Result float64
	// StartCPU is the part of CPU before the first sample, and EndCPU the part after the
	// last; 0 if unknown. Steady is the share of a CPU that the tool used in between, in its
	// steady state; 0 if that was too short.
	StartCPU, EndCPU, Steady float64
	// Running is the CPU time from the first sample to the end, for each second of sampling;
	// 0 if unknown. perf record does part of its work at the end.
	Running float64
	// RSS is the peak resident memory of the tool or its second program, Anonymous its
	// peak anonymous memory, and Maps the memory of its BPF maps.
	RSS, Anonymous, Maps uint64
	// BPF is the run time of all BPF programs of the tool, and Runs the number of runs of
	// its sampling programs. BPFShare is BPF as a share of a CPU; 0 if unknown.
	BPF, BPFShare float64
	Runs          uint64
}

// tool is a profiler.
type tool struct {
	name, version string
	// once means that it runs in the first round only.
	once bool
	// frequency is the only rate at which it runs, for the whole system; 0 means any.
	frequency int
	run       func(context.Context, job) (cost, error)
}

// takesPart reports whether a tool runs in a round of a scenario.
func (t tool) takesPart(s scenario, round int) bool {
	return !(t.once && round > 0) && (t.frequency == 0 || t.frequency == s.Frequency && !s.OnePID)
}

// Names of tools in the results.
const (
	nameFulgur = "fulgur --unwind fp"
	nameTables = "fulgur --unwind auto"
	nameAgent  = "fulgur agent"
	namePerf   = "perf record -g"
	nameBCC    = "bcc profile"
)

// toolNames are the tools' names on the command line.
var toolNames = []string{"fulgur", "fulgur-auto", "fulgur-agent", "perf", "bcc", "bpftrace"}

// findTools returns the tools with the given names, and notes about missing ones. It
// builds fulgur into dir.
func findTools(ctx context.Context, dir string, names []string) (tools []tool, notes []string, err error) {
	for _, name := range names {
		if !slices.Contains(toolNames, name) {
			return nil, nil, fmt.Errorf("unknown tool %q; the tools are %s", name, strings.Join(toolNames, ", "))
		}
	}
	program := filepath.Join(dir, "fulgur")
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "fulgur") }) {
		if err := build(ctx, "go", "build", "-trimpath", "-o", program, "fulgur/cmd/fulgur"); err != nil {
			return nil, nil, err
		}
	}
	if slices.Contains(names, "fulgur") {
		tools = append(tools, fulgur(nameFulgur, "fulgur (this tree)", program, "fp"))
	}
	if slices.Contains(names, "fulgur-auto") {
		tools = append(tools, fulgur(nameTables, "", program, "auto"))
	}
	if slices.Contains(names, "fulgur-agent") {
		tools = append(tools, agent(program))
	}
	peers := []struct {
		name string
		find func() (tool, error)
	}{{"perf", perf}, {"bcc", bcc}, {"bpftrace", bpftrace}}
	for _, p := range peers {
		if !slices.Contains(names, p.name) {
			continue
		}
		t, err := p.find()
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is left out: %v", p.name, err))
			continue
		}
		tools = append(tools, t)
	}
	return tools, notes, nil
}

// version returns the first line of the output of program --version.
func version(program string) string {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
