package unwindmap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
)

// Runtimes holds the processes with a language runtime and the processes with labels, for the
// kernel's walker. The kernel side copies entries to forked children, and removes the entry of a
// process that ends. It is not safe for concurrent use.
type Runtimes struct {
	runtimes, labels entries
	programs         programs
}

// Runtimes returns the processes with a language runtime and the processes with labels.
func (l *Loader) Runtimes() *Runtimes {
	o := &l.maps.objects.UnwindMaps
	return &Runtimes{
		entries{processes: o.RuntimeProcesses, any: o.RuntimeAny, what: "a language runtime", beyond: "further ones show only native frames"},
		entries{processes: o.LabelProcesses, any: o.LabelAny, what: "labels", beyond: "further ones show none"},
		programs{entries: o.RuntimePrograms},
	}
}

// Put sets the runtime of process pid. Until the first call, walks do not look for runtimes.
func (r *Runtimes) Put(pid int, p bpf.RuntimeProcess) error { return r.runtimes.put(pid, p) }

// PutProgram sets the runtime of the processes that run a program and that the kernel side does
// not know yet; see bpf/program.h for the key. If there are too many programs, it removes the one
// that was set the longest ago, even if to the same runtime.
func (r *Runtimes) PutProgram(key uint64, p bpf.RuntimeProgram) error {
	if err := r.runtimes.use(); err != nil {
		return err
	}
	return r.programs.put(program{key, p})
}

// programs is the map of programs with a language runtime. A walk that reads an entry while it is
// replaced checks what it finds in the memory of its process.
type programs struct {
	entries *ebpf.Map
	list    []program // the contents of entries; the one that was set last is the last one
}

// program is an entry.
type program struct {
	key     uint64
	runtime bpf.RuntimeProgram
}

func (ps *programs) put(p program) error {
	at := slices.IndexFunc(ps.list, func(old program) bool { return old.key == p.key })
	switch {
	case at >= 0:
		old := ps.list[at]
		ps.list = append(slices.Delete(ps.list, at, at+1), p)
		if old == p {
			return nil
		}
	case len(ps.list) == int(ps.entries.MaxEntries()):
		if err := ps.entries.Delete(ps.list[0].key); err != nil {
			return fmt.Errorf("remove a program with a language runtime: %w", err)
		}
		ps.list = append(slices.Delete(ps.list, 0, 1), p)
	default:
		ps.list = append(ps.list, p)
	}
	if err := ps.entries.Put(p.key, p.runtime); err != nil {
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
		p.Generation, p.Stacks, p.Sent = old.Generation, old.Stacks, old.Sent
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
