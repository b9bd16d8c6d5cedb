package unwindmap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/bpf"
)

// Runtimes holds the processes with a language runtime or with labels, for the kernel's walker. The kernel
// side copies entries to forked children, and removes the entry of a process that ends. It is
// not safe for concurrent use.
type Runtimes struct {
	processes, any *ebpf.Map // runtime_processes and runtime_any of bpf/runtime_maps.h
	used           bool      // any is set

	labels, anyLabels *ebpf.Map // label_processes and label_any of bpf/label_maps.h
	labeled           bool      // anyLabels is set
}

// Runtimes returns the processes with a language runtime or with labels.
func (l *Loader) Runtimes() *Runtimes {
	o := &l.maps.objects.UnwindMaps
	return &Runtimes{processes: o.RuntimeProcesses, any: o.RuntimeAny, labels: o.LabelProcesses, anyLabels: o.LabelAny}
}

// Put sets the runtime of process pid. Until the first call, walks do not look for runtimes.
func (r *Runtimes) Put(pid int, p bpf.RuntimeProcess) error {
	if !r.used {
		if err := r.any.Put(uint32(0), uint32(1)); err != nil {
			return fmt.Errorf("enable language runtimes: %w", err)
		}
		r.used = true
	}
	err := r.processes.Put(uint32(pid), p)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("more than %d processes have a language runtime; further ones show only native frames", r.processes.MaxEntries())
	}
	if err != nil {
		return fmt.Errorf("set the runtime of process %d: %w", pid, err)
	}
	return nil
}

// PutLabels sets how process pid keeps its labels. Until the first call, walks do not look for
// labels.
func (r *Runtimes) PutLabels(pid int, p bpf.LabelProcess) error {
	if !r.labeled {
		if err := r.anyLabels.Put(uint32(0), uint32(1)); err != nil {
			return fmt.Errorf("enable labels: %w", err)
		}
		r.labeled = true
	}
	err := r.labels.Put(uint32(pid), p)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("more than %d processes have labels; those of further ones are not read", r.labels.MaxEntries())
	}
	if err != nil {
		return fmt.Errorf("set the labels of process %d: %w", pid, err)
	}
	return nil
}
