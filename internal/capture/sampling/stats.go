package sampling

import (
	"fmt"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
)

// StatPerCPU returns counter i of each CPU, from the map stats of bpf/loss.h.
func StatPerCPU(stats *ebpf.Map, i bpf.Stat) ([]uint64, error) {
	var perCPU [][bpf.StatMax]uint64
	if err := stats.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read the counters of a BPF program: %w", err)
	}
	counts := make([]uint64, len(perCPU))
	for cpu, all := range perCPU {
		counts[cpu] = all[i]
	}
	return counts, nil
}
