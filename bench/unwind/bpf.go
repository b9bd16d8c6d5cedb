package main

import (
	"errors"

	"github.com/cilium/ebpf"
)

// lastProgram returns the ID of the BPF program that was loaded last.
func lastProgram() ebpf.ProgramID {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return id
		}
		id = next
	}
}

// perfPrograms returns the BPF programs of perf events that were loaded after the given
// one. They are the tool's unless another profiler started meanwhile.
func perfPrograms(after ebpf.ProgramID) map[*ebpf.Program]ebpf.ProgramStats {
	programs := map[*ebpf.Program]ebpf.ProgramStats{}
	for id := after; ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return programs
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // unloaded meanwhile
		}
		stats, err := p.Stats()
		if p.Type() != ebpf.PerfEvent || err != nil {
			_ = p.Close() // was only read
			continue
		}
		programs[p] = *stats
	}
}

// again returns the programs with their current statistics.
func again(programs map[*ebpf.Program]ebpf.ProgramStats) (map[*ebpf.Program]ebpf.ProgramStats, error) {
	for p := range programs {
		stats, err := p.Stats()
		if err != nil {
			return programs, err
		}
		programs[p] = *stats
	}
	return programs, nil
}

// nsPerRun returns the time per run of the programs since they were found, in
// nanoseconds. It closes them.
func nsPerRun(programs map[*ebpf.Program]ebpf.ProgramStats) (float64, error) {
	var ns, runs float64
	var errs []error
	for p, before := range programs {
		after, err := p.Stats()
		if err == nil {
			ns += float64((after.Runtime - before.Runtime).Nanoseconds())
			runs += float64(after.RunCount - before.RunCount)
		}
		errs = append(errs, err, p.Close())
	}
	if runs == 0 {
		return 0, errors.Join(errs...)
	}
	return ns / runs, errors.Join(errs...)
}
