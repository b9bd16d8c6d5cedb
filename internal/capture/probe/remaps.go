package probe

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
)

// remaps tracks the processes whose address space changed, as sent to the kernel
// side.
type remaps struct {
	raised map[int]uint32 // number of changes, by process
	lost   uint64         // no room in the kernel side's map
	swept  time.Time
}

// sweepEvery is the minimum time between searches for exited processes, to free
// room.
const sweepEvery = time.Second

// Remap makes the kernel side assign new stack IDs to process pid, because its
// addresses have a new meaning.
func (p *Probe) Remap(pid int) error {
	if p.remaps.raised == nil {
		p.remaps.raised = map[int]uint32{}
	}
	n := p.remaps.raised[pid] + 1
	err := p.Maps[bpf.MapRemaps].Put(uint32(pid), n)
	if errors.Is(err, unix.E2BIG) && time.Since(p.remaps.swept) > sweepEvery {
		p.remaps.swept = time.Now()
		p.sweepRemaps()
		err = p.Maps[bpf.MapRemaps].Put(uint32(pid), n)
	}
	if errors.Is(err, unix.E2BIG) {
		p.remaps.lost++
		return nil
	}
	if err != nil {
		return fmt.Errorf("raise the epoch of process %d: %w", pid, err)
	}
	p.remaps.raised[pid] = n
	return p.Variables[bpf.VarAnyRemaps].Set(uint32(1))
}

// sweepRemaps removes exited processes.
func (p *Probe) sweepRemaps() {
	maps.DeleteFunc(p.remaps.raised, func(pid int, _ uint32) bool {
		return !target.AnyAlive([]int{pid}) && p.Maps[bpf.MapRemaps].Delete(uint32(pid)) == nil
	})
}
