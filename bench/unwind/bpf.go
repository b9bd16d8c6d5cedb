package main

import (
	"errors"

	"github.com/cilium/ebpf"
)

// perfPrograms returns the BPF programs of perf events that are loaded now. Only
// the tool that is measured should have some.
func perfPrograms() map[*ebpf.Program]ebpf.ProgramStats {
	programs := map[*ebpf.Program]ebpf.ProgramStats{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return programs
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		stats, err := p.Stats()
		if p.Type() != ebpf.PerfEvent || err != nil {
			_ = p.Close() // was only looked at
			continue
		}
		programs[p] = *stats
	}
}

// nsPerRun returns how long the runs of programs took since they were found, those
// aside that only saw that it was another process's turn. It closes them.
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
