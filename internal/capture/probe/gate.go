package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/rcu"
)

// Gate decides when the sources of a run count: while it is open. It can be opened and shut once.
// See bpf/gate.h.
type Gate struct {
	times  *ebpf.Map
	memory *ebpf.Memory // of bpf.GateTimes
}

// NewGate returns a shut gate.
func NewGate() (*Gate, error) {
	memlock.Lift()
	times, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: bpf.MapGate, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(bpf.GateTimes{})),
		MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("create the gate of the BPF programs: %w", err)
	}
	g := &Gate{times: times}
	if g.memory, err = times.Memory(); err != nil {
		return nil, errors.Join(fmt.Errorf("map the gate of the BPF programs: %w", err), g.Close())
	}
	return g, nil
}

// Open lets the sources count from now on. g may be nil if there are no sources.
func (g *Gate) Open() error {
	if g == nil {
		return nil
	}
	return g.mark(unsafe.Offsetof(bpf.GateTimes{}.Began))
}

// Shut lets the sources count no longer. When it returns, no program runs that found the gate
// open. g may be nil if there are no sources.
func (g *Gate) Shut() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.mark(unsafe.Offsetof(bpf.GateTimes{}.Ended)), rcu.Wait())
}

// Ended returns the time at which the gate was shut, in CLOCK_MONOTONIC ns, or 0 if it was not.
func (g *Gate) Ended() (uint64, error) {
	var word [8]byte
	if _, err := g.memory.ReadAt(word[:], int64(unsafe.Offsetof(bpf.GateTimes{}.Ended))); err != nil {
		return 0, fmt.Errorf("read when the measurement ended: %w", err)
	}
	return binary.NativeEndian.Uint64(word[:]), nil
}

// mark stores the time in the word at an offset. A copy of 8 bytes is one store, so that no
// program sees a part of it.
func (g *Gate) mark(offset uintptr) error {
	now := binary.NativeEndian.AppendUint64(nil, monotonic.Now())
	if _, err := g.memory.WriteAt(now, int64(offset)); err != nil {
		return fmt.Errorf("start or stop measuring: %w", err)
	}
	return nil
}

// Close frees the gate. Loaded programs keep its state. g may be nil.
func (g *Gate) Close() error {
	if g == nil {
		return nil
	}
	return g.times.Close()
}
