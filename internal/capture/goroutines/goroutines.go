// Package goroutines measures waits of goroutines of Go programs: the time from when a goroutine parks until it
// runs again, by its stack and with Go's reason, with bpf/goroutine.bpf.c. It puts breakpoints at four functions of
// Go's runtime, which it finds in the files that processes map.
package goroutines

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/profile"
)

// DefaultPendingEntries is the default of [Config.PendingEntries].
const DefaultPendingEntries = 1 << 16

var _ interface {
	source.Source
	source.FileFollower
	source.Waiting
} = (*Source)(nil)

// Source is the loaded kernel side.
type Source struct {
	attach.Source
	index    uint8 // of the source in the run
	config   Config
	target   target.Target
	files    files
	counting bool
	open     uint64    // waits that were in progress at the end
	added    uint64    // waits that user space has counted
	unended  uint64    // waits in progress of processes whose end is unknown
	searched time.Time // when Check last searched for processes that have ended
}

// programs are the names of the programs, by their numbers. That of lists depends on the version of Go.
var programs = [...]string{
	park:    bpf.GoroutineProgGoroutinePark,
	ready:   bpf.GoroutineProgGoroutineReady,
	list:    bpf.GoroutineProgGoroutineList160,
	execute: bpf.GoroutineProgGoroutineExecute,
}

// lists are the programs of lists by the offset of schedlink, and their indexes in [attach.Source.Attached].
var lists = []struct {
	schedlink int
	name      string
	index     int
}{
	{160, bpf.GoroutineProgGoroutineList160, int(list)},
	{168, bpf.GoroutineProgGoroutineList168, len(programs)},
}

// Load loads the programs and their maps. It returns the kernel's errors as cilium/ebpf does.
func Load(o probe.Options, c Config) (*Source, error) {
	spec, err := bpf.LoadGoroutine()
	if err != nil {
		return nil, err
	}
	names := append(programs[:], bpf.GoroutineProgGoroutineList168)
	for _, name := range names {
		event := &events.Probe{Event: events.Event{Kind: events.Uprobe}}
		if err := (attach.Programs{Uprobe: name}).Adapt(spec, event, o.Types); err != nil {
			return nil, err
		}
	}
	spec.Maps[bpf.GoroutineMapGoroutineWaits].MaxEntries = max(c.PendingEntries, 1)
	longest := uint64(math.MaxUint64)
	if c.Longest > 0 {
		longest = uint64(c.Longest)
	}
	s := &Source{index: o.Source, config: c}
	s.Snapshots, err = source.LoadWithSnapshots(spec, o, map[string]any{
		bpf.GoroutineVarShortest: uint64(c.Shortest),
		bpf.GoroutineVarLongest:  longest,
		bpf.GoroutineVarByWaker:  c.WakerStacks,
		bpf.CountVarAtEntry:      true,
	}, counted)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s.Attached = append(s.Attached, attach.NewUprobe(s.Programs[name], nil))
	}
	return s, nil
}

// counted converts an entry of a count map.
func counted(k bpf.GoroutineCountKey, v bpf.GoroutineCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, Waker: k.Waker, TID: k.Tid, CPU: k.Cpu, Detail: k.Reason},
		stacks.Values{Waits: v.Times, Sleeping: v.Waiting, Runnable: v.Runnable, OffCPU: v.Waiting + v.Runnable}
}

// Attach prepares to attach to the files that [Source.Follow] gets.
func (s *Source) Attach(t target.Target) error {
	s.target = t
	if err := uprobe.CheckTracers(t); err != nil {
		return err
	}
	if err := s.FillTargets(t); err != nil {
		return err
	}
	return s.AttachTracing(bpf.GoroutineProgGoroutineExit)
}

// Begin implements [source.Source]. It fails if the processes that the target names have no goroutines that can be
// measured.
func (s *Source) Begin() error {
	if err := s.files.check(s.target); err != nil {
		return err
	}
	s.counting = true
	s.searched = time.Now()
	return s.Source.Begin()
}

// End implements [source.Source]. It counts the waits in progress until now, or until the end of their process.
func (s *Source) End() error {
	ended, err := s.Gate().Ended()
	if err == nil {
		err = s.endAll(ended)
	}
	return errors.Join(err, s.Source.End())
}

// goneEvery is the time between two searches for waits of processes that have ended.
const goneEvery = 10 * time.Second

// Check implements [source.Source]. It makes room that waits of ended processes take.
func (s *Source) Check() error {
	if time.Since(s.searched) < goneEvery || !s.counting {
		return nil
	}
	s.searched = time.Now()
	return s.endAll(0)
}

// endAll counts the waits in progress of processes that have ended, and forgets them. If now, in CLOCK_MONOTONIC ns,
// is not 0, it also counts those of the other processes until now.
func (s *Source) endAll(now uint64) error {
	// Before the processes: one that begins in between is living.
	waits, err := s.inProgress()
	if err != nil || len(waits) == 0 {
		return err
	}
	living, err := s.living()
	if err != nil {
		return err
	}
	for g, wait := range waits {
		until := now
		switch {
		case !living[g.Image]:
			if err := s.Maps[bpf.GoroutineMapGoroutineWaits].Delete(&g); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("forget the goroutines of a process that has ended: %w", err)
			}
			if err := s.Maps[bpf.GoroutineMapGoroutineExits].Lookup(g.Image, &until); err != nil {
				s.unended++
				continue
			}
			if now != 0 {
				until = min(until, now)
			}
		case now == 0:
			continue
		default:
			s.open++
		}
		s.count(wait, until)
	}
	return nil
}

// count counts a wait until a time.
func (s *Source) count(w bpf.GoroutineGoroutineWait, until uint64) {
	length := until - min(w.Since, until)
	if length < uint64(s.config.Shortest) || s.config.Longest > 0 && length > uint64(s.config.Longest) {
		return
	}
	woken := until
	if w.Woken >= w.Since {
		woken = min(w.Woken, until)
	}
	k := bpf.GoroutineCountKey{Id: w.Id, Waker: w.Waker, Reason: uint64(w.Reason)}
	if s.config.byThread {
		k.Tid = w.Tid
	}
	if s.config.byCPU {
		k.Cpu = w.Cpu
	}
	key, values := counted(k, bpf.GoroutineCountValue{Times: 1, Waiting: woken - min(w.Since, woken), Runnable: until - woken})
	key.Source = s.index
	s.Counts().Add(key, values)
	s.added++
}

// inProgress returns the waits in progress.
func (s *Source) inProgress() (map[bpf.GoroutineGoroutine]bpf.GoroutineGoroutineWait, error) {
	const batch = 1024
	waits := map[bpf.GoroutineGoroutine]bpf.GoroutineGoroutineWait{}
	keys, values := make([]bpf.GoroutineGoroutine, batch), make([]bpf.GoroutineGoroutineWait, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := s.Maps[bpf.GoroutineMapGoroutineWaits].BatchLookup(&cursor, keys, values, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return nil, fmt.Errorf("list the waiting goroutines: %w", err)
		}
		for i, key := range keys[:n] {
			waits[key] = values[i]
		}
		if end {
			return waits, nil
		}
	}
}

// living returns the images of the target's processes.
func (s *Source) living() (map[uint64]bool, error) {
	iter, err := link.AttachIter(link.IterOptions{Program: s.Programs[bpf.GoroutineProgGoroutineImages]})
	if err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	defer iter.Close()
	r, err := iter.Open()
	if err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	_, err = io.Copy(io.Discard, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	living, found := map[uint64]bool{}, s.Maps[bpf.GoroutineMapGoroutineLiving]
	var image uint64
	var one uint32
	all := found.Iterate()
	for all.Next(&image, &one) {
		living[image] = true
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	for image := range living { // for the next time
		if err := found.Delete(image); err != nil {
			return nil, fmt.Errorf("list the target's processes: %w", err)
		}
	}
	return living, nil
}

// Pending implements [source.Waiting].
func (s *Source) Pending() (ids []uint64, err error) {
	waits, err := s.inProgress()
	for _, w := range waits {
		ids = append(ids, w.Id)
		if w.Waker != 0 {
			ids = append(ids, w.Waker)
		}
	}
	return ids, err
}

// Stats implements [source.Source].
func (s *Source) Stats() (probe.Stats, error) {
	stats, err := s.Source.Stats()
	stats.Samples += s.added
	stats.Losses[profile.LossMissed] += s.unended
	return stats, err
}

// hitCounts are the numbers of hits of the programs.
type hitCounts = bpf.GoroutineHitCounts

// hits returns the numbers of hits so far.
func (s *Source) hits() (sum hitCounts, err error) {
	var perCPU []bpf.GoroutineHitCounts
	if err := s.Maps[bpf.GoroutineMapGoroutineHits].Lookup(uint32(0), &perCPU); err != nil {
		return sum, fmt.Errorf("read the number of hits: %w", err)
	}
	for _, c := range perCPU {
		for program, hits := range c.Hits {
			sum.Hits[program] += hits
		}
		sum.Others += c.Others
		sum.Earlier += c.Earlier
		sum.Unlisted += c.Unlisted
	}
	return sum, nil
}
