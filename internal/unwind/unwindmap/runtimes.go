package unwindmap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/bpf"
)

// Runtimes holds the processes with a language runtime and the processes with labels, for the
// kernel's walker. The kernel side copies entries to forked children, and removes the entry of a
// process that ends. It is not safe for concurrent use.
type Runtimes struct {
	runtimes, labels entries
	programs         *ebpf.Map
}

// Runtimes returns the processes with a language runtime and the processes with labels.
func (l *Loader) Runtimes() *Runtimes {
	o := &l.maps.objects.UnwindMaps
	return &Runtimes{
		entries{processes: o.RuntimeProcesses, any: o.RuntimeAny, what: "a language runtime", beyond: "further ones show only native frames"},
		entries{processes: o.LabelProcesses, any: o.LabelAny, what: "labels", beyond: "further ones show none"},
		o.RuntimePrograms,
	}
}

// Put sets the runtime of process pid. Until the first call, walks do not look for runtimes.
func (r *Runtimes) Put(pid int, p bpf.RuntimeProcess) error { return r.runtimes.put(pid, p) }

// PutProgram sets the runtime of the processes that run a program and that the kernel side does
// not know yet; see bpf/program.h for the key. If the map is full, it does nothing: only the first
// samples of these processes lack frames.
func (r *Runtimes) PutProgram(key uint64, p bpf.RuntimeProgram) error {
	if err := r.runtimes.use(); err != nil {
		return err
	}
	if err := r.programs.Put(key, p); err != nil && !errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("note that a program has a language runtime: %w", err)
	}
	return nil
}

// PutLabels sets how process pid keeps its labels. Until the first call, walks do not look for
// labels. What the kernel side counts in the entry of a process image stays, so that the limits on
// the process hold.
func (r *Runtimes) PutLabels(pid int, p bpf.LabelProcess) error {
	var old bpf.LabelProcess
	if err := r.labels.processes.Lookup(uint32(pid), &old); err == nil && old.Image == p.Image {
		p.Generation, p.Stacks, p.Window, p.Bytes = old.Generation, old.Stacks, old.Window, old.Bytes
	}
	return r.labels.put(pid, p)
}

// entries is a map of processes, and the flag that makes walks look into it.
type entries struct {
	processes, any *ebpf.Map // such as runtime_processes and runtime_any of bpf/runtime_maps.h
	used           bool      // any is set
	what, beyond   string    // what the processes have, and the consequence of a full map
}

// use makes walks look for entries.
func (e *entries) use() error {
	if e.used {
		return nil
	}
	if err := e.any.Put(uint32(0), uint32(1)); err != nil {
		return fmt.Errorf("look for %s in walks: %w", e.what, err)
	}
	e.used = true
	return nil
}

func (e *entries) put(pid int, entry any) error {
	if err := e.use(); err != nil {
		return err
	}
	err := e.processes.Put(uint32(pid), entry)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("more than %d processes have %s; %s", e.processes.MaxEntries(), e.what, e.beyond)
	}
	if err != nil {
		return fmt.Errorf("note that process %d has %s: %w", pid, e.what, err)
	}
	return nil
}
