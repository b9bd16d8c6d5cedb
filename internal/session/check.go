package session

import (
	"errors"
	"os"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// timesRingSize is the ring's size in bytes if each event passes through it. It
// holds the events between two polls at a million events per second, or of one
// second without a poll at a hundred thousand.
const timesRingSize = 8 << 20

// maxRingSize is the largest ring, in bytes.
const maxRingSize = 1 << 30

// complete checks the options and fills in defaults. Errors are usage errors,
// except if /proc cannot be read.
func (o *Options) complete(what source.Subject) error {
	if waits, ok := what.(*offcpu.Subject); o.OwnLabel && (!ok || !waits.Peers) {
		return usage.Errorf("only waits have peers: use fulgur offcpu")
	}
	return errors.Join(what.Complete(source.Common{Target: &o.Target, UserOnly: o.UserOnly}), o.check())
}

// check checks o against the machine's limits and fills in defaults, for all
// kinds of profiles.
func (o *Options) check() error {
	if o.Every != 0 && o.Every < MinWindow {
		return usage.Errorf("windows of %s are too short: the minimum is %s", o.Every, MinWindow)
	}
	if o.UserOnly && o.KernelOnly {
		return usage.Errorf("user stacks only and kernel stacks only cannot be combined")
	}
	if err := o.Rules.Check(); err != nil {
		return usage.Errorf("%v", err)
	}
	if err := o.checkByLabel(); err != nil {
		return err
	}
	if err := o.checkSymfs(); err != nil {
		return err
	}
	if err := o.completeDepth(); err != nil {
		return err
	}
	return o.completeSizes()
}

// checkByLabel refuses groups by label if no labels are read: all samples would lack the label.
func (o *Options) checkByLabel() error {
	if o.By != profile.GroupLabel || o.OwnLabel {
		return nil
	}
	const all = "groups by label and %s cannot be combined: only the walk by unwind tables with interpreters reads labels"
	switch {
	case o.Unwind == "fp":
		return usage.Errorf(all, "unwinding by frame pointers")
	case o.Interpreters == interpretersOff:
		return usage.Errorf(all, "native functions only")
	case o.KernelOnly:
		return usage.Errorf(all, "kernel stacks only")
	}
	return nil
}

// The ring of a whole machine holds copies of stacks, up to 34 KiB each, whose tables are not made yet: most
// of the first samples of each program. On a busy machine, fulgur may have to wait for a CPU itself before it
// reads them.
const (
	copiesRingSize   = 2 << 20   // bytes
	copiesRingPerCPU = 256 << 10 // bytes
	maxCopiesRing    = 16 << 20  // bytes
)

// ringPreset returns the default size of the ring. It counts twice as resident
// memory, because a ring is mapped twice in a row. A few processes send fewer
// new stacks between two polls than a whole machine, so they get a smaller
// ring.
func (o *Options) ringPreset(cpus int) uint32 {
	if o.hasTimes() {
		return timesRingSize
	}
	switch o.Target.Scope {
	case target.Processes, target.Threads, target.Command:
		return probe.DefaultRingSize / 2
	}
	if !o.unwind().HasTables() {
		return probe.DefaultRingSize
	}
	return min(copiesRingSize+uint32(cpus)*copiesRingPerCPU, maxCopiesRing)
}

// completeSizes limits map sizes by the kernel's limits and the machine's memory.
// Larger sizes are probably typos.
func (o *Options) completeSizes() error {
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	for _, s := range []struct {
		option           usage.Option
		size             *uint32
		preset, min, max uint32
	}{
		{usage.RingSize, &o.RingSize, o.ringPreset(len(cpus)), uint32(os.Getpagesize()), maxRingSize},
		{usage.CountEntries, &o.CountEntries, probe.DefaultCountEntries, 1, probe.MaxEntries},
		{usage.SeenEntries, &o.SeenEntries, probe.DefaultSeenEntries, 1, probe.MaxEntries},
	} {
		if err := probe.CompleteSize(s.option, s.size, s.preset, s.min, s.max); err != nil {
			return err
		}
	}
	return nil
}

// checkSymfs rejects paths that are not directories.
func (o *Options) checkSymfs() error {
	if o.Symfs == "" {
		return nil
	}
	info, err := safeopen.Stat(o.Symfs)
	if err != nil {
		return usage.Errorf("%s: %v", usage.Symfs, err)
	}
	if !info.IsDir() {
		return usage.Errorf("%s: %s is not a directory", usage.Symfs, o.Symfs)
	}
	return nil
}

// completeDepth limits the depth to the kernel's own limit, so that truncated
// stacks are recognized as truncated.
func (o *Options) completeDepth() error {
	limit, err := perfevent.MaxStack()
	if err != nil {
		return withoutProc(err)
	}
	switch {
	case o.MaxDepth > bpf.MaxDepth:
		return usage.Errorf("depth %d is above the maximum of %d frames", o.MaxDepth, bpf.MaxDepth)
	case o.MaxDepth > limit:
		return usage.Errorf("depth %d is above the kernel's limit of %d frames (sysctl kernel.perf_event_max_stack)", o.MaxDepth, limit)
	case o.MaxDepth < 0:
		return usage.Errorf("depth %d is negative", o.MaxDepth)
	case o.MaxDepth == 0:
		o.MaxDepth = min(limit, bpf.MaxDepth)
	}
	return nil
}

// withoutProc adds the problem with /proc to err, an error of reading /proc.
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
