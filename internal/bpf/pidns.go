package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// initialPIDNamespace is the target of /proc/self/ns/pid in the initial PID namespace, whose inode
// number is PROC_PID_INIT_INO of include/linux/proc_ns.h.
const initialPIDNamespace = "pid:[4026531836]"

// InPIDNamespace reports whether this process is outside the initial PID namespace.
func InPIDNamespace() bool {
	// The link exists on every kernel. If it cannot be read, assume the initial namespace.
	ns, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && ns != initialPIDNamespace
}

// pidNamespace is what programs need to know of our PID namespace; see bpf/task.h.
type pidNamespace struct {
	level   uint32
	address uint64
	exited  *ebpf.Map
	noted   link.Link // fills exited
}

// ownPIDNamespace returns our PID namespace, nil if it is the initial one. From then on, the tasks
// that exit in it are noted, until this process ends.
var ownPIDNamespace = sync.OnceValues(func() (*pidNamespace, error) {
	if !InPIDNamespace() {
		return nil, nil
	}
	ns := &pidNamespace{}
	if err := ns.find(); err != nil {
		return nil, err
	}
	spec, err := LoadPIDNS()
	if err != nil {
		return nil, err
	}
	spec.Maps[PIDNSMapExitedPids].MaxEntries = 1 << 14
	if err := ns.set(spec); err != nil {
		return nil, err
	}
	var objects PIDNSObjects
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return nil, err
	}
	ns.exited = objects.ExitedPids
	ns.noted, err = link.AttachTracing(link.TracingOptions{Program: objects.PidnsExit})
	return ns, err
})

// find runs a program that looks at this process.
func (ns *pidNamespace) find() error {
	spec, err := LoadPIDNS()
	if err != nil {
		return err
	}
	delete(spec.Programs, PIDNSProgPidnsExit)
	found, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer found.Close()
	if _, err := found.Programs[PIDNSProgPidnsFind].Run(&ebpf.RunOptions{}); err != nil {
		return err
	}
	return errors.Join(
		found.Variables[PIDNSVarFoundLevel].Get(&ns.level),
		found.Variables[PIDNSVarFoundAddress].Get(&ns.address),
	)
}

func (ns *pidNamespace) set(spec *ebpf.CollectionSpec) error {
	return errors.Join(
		spec.Variables[PIDNSVarPidLevel].Set(ns.level),
		spec.Variables[PIDNSVarPidNamespace].Set(ns.address),
	)
}

// UsePIDNamespace makes the programs of spec, which o loads, use the IDs of tasks in our PID
// namespace. Without it they use those of the initial one. Errors come from the kernel, as cilium/ebpf
// returns them.
func UsePIDNamespace(spec *ebpf.CollectionSpec, o *ebpf.CollectionOptions) error {
	ns, err := ownPIDNamespace()
	if err != nil {
		return fmt.Errorf("find the PID namespace of fulgur: %w", err)
	}
	if ns == nil {
		return nil
	}
	if o.MapReplacements == nil {
		o.MapReplacements = map[string]*ebpf.Map{}
	}
	o.MapReplacements[PIDNSMapExitedPids] = ns.exited
	spec.Maps[PIDNSMapExitedPids].MaxEntries = ns.exited.MaxEntries()
	return ns.set(spec)
}
