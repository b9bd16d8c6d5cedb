package branches

import (
	"cmp"
	"errors"
	"maps"

	"fulgur/internal/bolt"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/process"
)

// spaces caches the address spaces of sampled processes, as far as their branches
// need them. A sample has 64 addresses, and nearly all are in known mappings.
type spaces struct {
	processes *process.Table
	binaries  *binaries

	known map[int]bolt.Layout
	// changed is the time of a process's last change of mappings. Samples from
	// before it cannot use the cached mappings.
	changed map[int]uint64
	// all is the same for all processes.
	all uint64
	// past is the number of processes that had exited when their mappings were
	// read, without a sample.
	past uint64
}

// foreign stands for all code that is not profiled.
var foreign = new(bolt.Binary)

// layout returns a layout with the addresses of the sample's branches whose code is profiled.
func (s *spaces) layout(sample bolt.Sample) bolt.Layout {
	if s.binaries.kernel.Len() > 0 {
		return s.binaries.kernel
	}
	current := sample.Time > max(s.changed[sample.PID], s.all)
	var known bolt.Layout
	if current {
		known = s.known[sample.PID]
	}
	var at *bolt.Region
	grown := false
	for _, e := range sample.Entries {
		for _, addr := range [2]uint64{e.To, e.From} {
			if at != nil && addr-at.Start < at.End-at.Start {
				continue // same region as before
			}
			region := known.At(addr)
			if region == nil {
				found, ok := s.resolve(sample, addr)
				if !ok {
					continue
				}
				known, region, grown = known.With(found), &found, true
			}
			at = region
		}
	}
	// Looking up mappings may have drained the sideband.
	if grown && current && sample.Time > max(s.changed[sample.PID], s.all) {
		if s.known == nil {
			s.known = map[int]bolt.Layout{}
		}
		s.known[sample.PID] = known
	}
	return known
}

// userLimit is above all addresses of user space.
const userLimit = 1 << 57

// resolve returns the region at addr in a sample's process.
func (s *spaces) resolve(sample bolt.Sample, addr uint64) (bolt.Region, bool) {
	if addr >= userLimit {
		return bolt.Region{}, false
	}
	at := s.processes.Resolve(sample.PID, addr, sample.Time)
	if at.MapStart >= at.MapLimit {
		return bolt.Region{}, false
	}
	if at.File != nil {
		if b := s.binaries.of(at.File); b != nil {
			if r, ok := b.Region(at.MapStart, at.MapLimit-at.MapStart, at.MapOffset); ok {
				return r, true
			}
		}
	}
	return bolt.Region{Start: at.MapStart, End: at.MapLimit, Binary: foreign}, true
}

// maps reports whether a process has mapped profiled code. known is false while
// /proc or a file system has not responded yet.
func (s *spaces) maps(pid int) (mapped, known bool) {
	list, err := s.processes.Maps(pid)
	if err != nil {
		return false, !errors.Is(err, safeopen.ErrNoAnswer) // it has exited
	}
	now, gone := monotonic.Now(), s.processes.Gone()
	defer func() { s.past += s.processes.Gone() - gone }()
	known = true
	for _, m := range list {
		at := s.processes.Resolve(pid, m.Start, now)
		switch {
		case at.File == nil:
			known = known && !s.processes.Unread(pid)
		case s.binaries.of(at.File) != nil:
			return true, true
		default:
			known = known && s.binaries.isKnown(at.File)
		}
	}
	return false, known
}

// handleRecord drops cached data that a sideband record invalidates.
func (s *spaces) handleRecord(r perfevent.Record) {
	switch r := r.(type) {
	case perfevent.Mmap2:
		for range s.known[r.PID].Over(r.Addr, r.Addr+r.Len) {
			s.change(r.PID, r.Time)
			break
		}
	case perfevent.Comm:
		if r.Exec {
			s.change(r.PID, r.Time)
		}
	case perfevent.Fork:
		if r.PID != r.PPID {
			s.change(r.PID, r.Time)
		}
	case perfevent.Exit:
		if r.PID == r.TID {
			delete(s.known, r.PID)
		}
	case perfevent.Lost:
		s.all = max(s.all, cmp.Or(r.Time, monotonic.Now()))
		clear(s.known)
	}
}

func (s *spaces) change(pid int, time uint64) {
	if s.changed == nil {
		s.changed = map[int]uint64{}
	}
	s.changed[pid] = max(s.changed[pid], time)
	delete(s.known, pid)
}

// forget drops data that samples later than before do not need.
func (s *spaces) forget(before uint64) {
	maps.DeleteFunc(s.changed, func(_ int, time uint64) bool { return time < before })
}
