package session

import (
	"os"

	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
)

// hardMaxDepth is the room for frames in the kernel side's records,
// bpf/record.h.
const hardMaxDepth = 127

// timesRingSize is the size in bytes of the ring where each event comes through it:
// what a million events a second leave there between two polls, or a hundred
// thousand while the machine keeps fulgur waiting for a second.
const timesRingSize = 8 << 20

// maxRingSize is the largest ring, in bytes.
const maxRingSize = 1 << 30

// complete checks o against this machine's limits and fills in defaults, for
// profiles of all kinds.
func (o *Options) complete() error {
	if o.UserOnly && o.KernelOnly {
		return usage.Errorf("user stacks only and kernel stacks only cannot be combined")
	}
	if err := o.checkSymfs(); err != nil {
		return err
	}
	if err := o.completeDepth(); err != nil {
		return err
	}
	return o.completeSizes()
}

// ringPreset is the size of the ring unless another is asked for. It is resident
// memory, twice, because it is mapped twice in a row; what a few processes
// show anew between two polls needs less of it than a machine does.
func (o *Options) ringPreset() uint32 {
	if o.hasTimes() {
		return timesRingSize
	}
	switch o.Target.Scope {
	case target.Processes, target.Threads, target.Command:
		return probe.DefaultRingSize / 2
	}
	return probe.DefaultRingSize
}

// completeSizes limits the maps to what the kernel creates and a machine may
// have: beyond, a size is a slip.
func (o *Options) completeSizes() error {
	for _, s := range []struct {
		flag                string
		size                *uint32
		preset, least, most uint32
	}{
		{"--ring-size", &o.RingSize, o.ringPreset(), uint32(os.Getpagesize()), maxRingSize},
		{"--count-entries", &o.CountEntries, probe.DefaultCountEntries, 1, probe.MaxEntries},
		{"--seen-entries", &o.SeenEntries, probe.DefaultSeenEntries, 1, probe.MaxEntries},
	} {
		if err := probe.CompleteSize(s.flag, s.size, s.preset, s.least, s.most); err != nil {
			return err
		}
	}
	return nil
}

// checkSymfs refuses what cannot hold debug files.
func (o *Options) checkSymfs() error {
	if o.Symfs == "" {
		return nil
	}
	info, err := safeopen.Stat(o.Symfs)
	if err != nil {
		return usage.Errorf("--symfs: %v", err)
	}
	if !info.IsDir() {
		return usage.Errorf("--symfs: %s is not a directory", o.Symfs)
	}
	return nil
}

// completeDepth limits the depth to what the kernel walks, so that a stack cut
// there is known to be cut.
func (o *Options) completeDepth() error {
	limit, err := perfevent.MaxStack()
	if err != nil {
		return withoutProc(err)
	}
	switch {
	case o.MaxDepth > limit:
		return usage.Errorf("depth %d is above the kernel's limit of %d frames (sysctl kernel.perf_event_max_stack)", o.MaxDepth, limit)
	case o.MaxDepth > hardMaxDepth:
		return usage.Errorf("depth %d is above the maximum of %d frames", o.MaxDepth, hardMaxDepth)
	case o.MaxDepth < 0:
		return usage.Errorf("depth %d is negative", o.MaxDepth)
	case o.MaxDepth == 0:
		o.MaxDepth = min(limit, hardMaxDepth)
	}
	return nil
}

// withoutProc returns err, which came of reading /proc, with what is wrong with that.
func withoutProc(err error) error {
	facts, readErr := doctor.Read()
	if readErr != nil {
		return err
	}
	if p := facts.Judge(doctor.CheckProc); p != nil {
		return &doctor.Error{Doing: "profiling", Problems: []doctor.Problem{*p}, Err: err}
	}
	return err
}
