package oncpu

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/target"
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
func (s *Source) Remap(pid int) error {
	if s.remaps.raised == nil {
		s.remaps.raised = map[int]uint32{}
	}
	n := s.remaps.raised[pid] + 1
	err := s.objects.Remaps.Put(uint32(pid), n)
	if errors.Is(err, unix.E2BIG) && time.Since(s.remaps.swept) > sweepEvery {
		s.remaps.swept = time.Now()
		s.sweepRemaps()
		err = s.objects.Remaps.Put(uint32(pid), n)
	}
	if errors.Is(err, unix.E2BIG) {
		s.remaps.lost++
		return nil
	}
	if err != nil {
		return fmt.Errorf("raise the epoch of process %d: %w", pid, err)
	}
	s.remaps.raised[pid] = n
	return s.objects.AnyRemaps.Set(uint32(1))
}

// sweepRemaps forgets processes that have ended.
func (s *Source) sweepRemaps() {
	maps.DeleteFunc(s.remaps.raised, func(pid int, _ uint32) bool {
		return !target.AnyAlive([]int{pid}) && s.objects.Remaps.Delete(uint32(pid)) == nil
	})
}
