// Package softirq measures soft interrupts: the number and duration of handler runs
// by vector and stack, with bpf/softirq.bpf.c.
package softirq

import (
	"fmt"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
)

// Vector is the number of a soft interrupt.
type Vector uint32

// vectors holds the names of the numbers in the kernel's include/linux/interrupt.h,
// as in /proc/softirqs.
var vectors = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

// String returns the name in /proc/softirqs, such as "NET_RX".
func (v Vector) String() string {
	if int(v) < len(vectors) {
		return vectors[v]
	}
	return fmt.Sprintf("vector %d", uint32(v))
}

// Source is the loaded kernel side.
type Source struct {
	source.Base
}

// Load loads the programs and their maps. It returns the kernel's errors as
// cilium/ebpf does.
func Load(o probe.Options) (*Source, error) {
	spec, err := bpf.LoadSoftIRQ()
	if err != nil {
		return nil, err
	}
	p, err := probe.Load(spec, o, nil, counted)
	if err != nil {
		return nil, err
	}
	return &Source{Base: source.Base{Probe: p}}, nil
}

// counted converts an entry of a count map. The detail is the [Vector].
func counted(k bpf.SoftIRQCountKey, v bpf.SoftIRQCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, TID: k.Tid, CPU: k.Cpu, Detail: uint64(k.Vector)},
		stacks.Values{Times: v.Times, Duration: v.Duration}
}

// Attach implements [source.Source]. Handlers that are running at the beginning or the end do not
// count.
func (s *Source) Attach(t target.Target) error {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	return s.AttachTracing(bpf.SoftIRQProgSoftirqExit, bpf.SoftIRQProgSoftirqEntry)
}
