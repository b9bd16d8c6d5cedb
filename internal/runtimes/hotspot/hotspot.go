// Package hotspot finds the layout of the JVM HotSpot in OpenJDK 17, 21 and 25, which the
// kernel side (bpf/hotspot.h) needs, and reads the names and lines of Java methods from the
// memory of processes.
//
// HotSpot describes itself in tables for its Serviceability Agent: gHotSpotVMStructs has the
// offsets of fields, and other tables have constants and the sizes of types (vmStructs.hpp of
// HotSpot). No table describes the formats of its debug information, so only tested versions
// are supported.
package hotspot

import (
	"debug/elf"
	"fmt"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
)

// Runtime is HotSpot.
type Runtime struct{}

// Name implements [runtimes.Runtime].
func (Runtime) Name() string { return "java" }

// ReadsMemory implements [runtimes.Runtime].
func (Runtime) ReadsMemory() bool { return true }

// Internal implements [runtimes.Runtime].
func (Runtime) Internal(*runtimes.Code) bool { return false }

// Line implements [runtimes.Runtime]. The reader finds lines.
func (Runtime) Line(*runtimes.Code, int) int { return 0 }

// supported has the tested versions of Java.
var supported = map[int]bool{17: true, 21: true, 25: true}

// Detect implements [runtimes.Runtime].
func (Runtime) Detect(f *elffile.File) (*runtimes.Build, error) {
	addresses := map[string]uint64{}
	for i, name := range tableSymbols {
		s, ok, err := f.DynamicSymbol(name)
		if err != nil || !ok && i == 0 {
			return nil, err
		}
		if !ok {
			return &runtimes.Build{Unknown: "java without " + name + ": its functions are not shown"}, nil
		}
		addresses[name] = s.Value
	}
	b := &runtimes.Build{Entry: bpf.RuntimeProcess{Kinds: 1 << bpf.RuntimeHotSpot}}
	if f.Machine() != elf.EM_X86_64 {
		b.Unknown = "java on this machine: not supported yet, its functions are not shown"
	}
	b.Place = func(*bpf.RuntimeProcess, uint64, bool) {}
	b.Open = func(entry *bpf.RuntimeProcess, bias uint64, m runtimes.Memory) (runtimes.Reader, error) {
		return open(entry, tables{pages: pages{memory: m}, addresses: addresses, bias: bias})
	}
	return b, nil
}

// open reads the layout of a process, completes its entry, and returns a reader.
func open(entry *bpf.RuntimeProcess, t tables) (runtimes.Reader, error) {
	d, err := t.read()
	if err != nil {
		return nil, err
	}
	// The JVM sets its version when it starts.
	version, err := d.staticInt("Abstract_VM_Version._vm_major_version")
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return nil, runtimes.ErrNotReady
	}
	if !supported[version] {
		return nil, runtimes.UnknownError(fmt.Sprintf("java %d: not supported yet, its functions are not shown", version))
	}
	l, missing := newLayout(d, version)
	if missing != "" {
		return nil, runtimes.UnknownError(fmt.Sprintf("java %d: %s is not known, its functions are not shown", version, missing))
	}
	if err := l.place(d, entry); err != nil {
		return nil, err
	}
	return newReader(l, t.memory), nil
}
