package oncpu

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
)

// errNoRunQueue means that the kernel side could not tell which thread a CPU runs.
var errNoRunQueue = errors.New("the number of running threads is unknown: the kernel was built without group scheduling (CONFIG_FAIR_GROUP_SCHED)")

// findRunQueues makes the kernel side know which threads run on the CPUs, those of them that it does not know yet.
// Run queues stay where they are while their CPU is offline.
func (s *Source) findRunQueues(online []int) error {
	program, queues := s.Programs[bpf.OnCPUProgFindRunQueue], s.Maps[bpf.OnCPUMapRunQueues]
	if program == nil {
		return nil // not needed
	}
	for _, cpu := range online {
		var queue uint64
		if err := queues.Lookup(uint32(cpu), &queue); err != nil {
			return fmt.Errorf("look up the run queue of CPU %d: %w", cpu, err)
		}
		if queue != 0 {
			continue
		}
		switch _, err := program.Run(&ebpf.RunOptions{Flags: unix.BPF_F_TEST_RUN_ON_CPU, CPU: uint32(cpu)}); {
		case errors.Is(err, unix.ENXIO):
			continue // offline meanwhile
		case err != nil:
			return fmt.Errorf("find the run queue of CPU %d: %w", cpu, err)
		}
		if err := queues.Lookup(uint32(cpu), &queue); err != nil || queue == 0 {
			return errors.Join(errNoRunQueue, err)
		}
	}
	return nil
}
