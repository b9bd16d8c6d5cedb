package probe

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/bpf"
	"fulgur/internal/capture/target"
)

// remaps is what the kernel side was told of processes whose addresses changed
// their meaning.
type remaps struct {
	raised map[int]uint32 // how often, by process
	lost   uint64         // that the kernel side had no room for
	swept  time.Time
}

// sweepEvery is how often at most ended processes are looked for, to make
// room.
const sweepEvery = time.Second

// Remap makes the kernel side name the stacks of process pid anew: its
// addresses mean something else than before.
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

// sweepRemaps forgets processes that have ended.
func (p *Probe) sweepRemaps() {
	maps.DeleteFunc(p.remaps.raised, func(pid int, _ uint32) bool {
		return !target.AnyAlive([]int{pid}) && p.Maps[bpf.MapRemaps].Delete(uint32(pid)) == nil
	})
}
