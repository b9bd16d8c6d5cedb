package session

import (
	"fulgur/bpf"
	"fulgur/internal/profile"
	"fulgur/internal/stacks"
)

// buildProfile turns bodies and counts into a profile with names. lost are the
// counts whose body never arrived.
func buildProfile(what subject, store *stacks.Store, lost map[stacks.Key]stacks.Value, names *names, meta profile.Meta, losses profile.Losses) *profile.Profile {
	b := profile.NewBuilder(what.valueTypes()...)
	p := newPlacer(b, store, names)
	losses.UnresolvedFrames = names.unresolved
	cpu := func(n uint32) int {
		if meta.PerCPU {
			return int(n)
		}
		return -1
	}
	for counted, value := range store.Samples {
		body := store.Bodies[counted.Body]
		if p.unresolved[body.Leaf] {
			losses.Unresolved += value.Samples
		}
		b.Add(profile.Sample{
			Stack:  what.place(p, counted),
			Task:   b.Task(profile.Task{PID: int(body.PID), TID: int(counted.TID), Comm: body.Name()}),
			CPU:    cpu(counted.CPU),
			End:    end(body, value.Samples, &losses),
			Values: what.values(value),
		})
	}
	for key, value := range lost {
		losses.Bodies += value.Samples
		b.Add(profile.Sample{
			Stack:  p.mark(0, "[stack lost]"),
			Task:   b.Task(profile.Task{TID: int(key.TID), Comm: "[unknown]"}),
			CPU:    cpu(key.CPU),
			End:    profile.EndLost,
			Values: what.values(value),
		})
	}
	return b.Profile(meta, losses)
}

// end translates why a stack ended and counts samples of cut stacks.
func end(body stacks.Body, samples uint64, losses *profile.Losses) profile.End {
	if body.KernelEnd == bpf.OnCPUStackEndEND_DEPTH {
		losses.TruncatedKernel += samples
	}
	if body.Broken {
		losses.BrokenUser += samples
		return profile.EndBroken
	}
	switch body.UserEnd {
	case bpf.OnCPUStackEndEND_FRAME_POINTER:
		return profile.EndFramePointer
	case bpf.OnCPUStackEndEND_DEPTH:
		losses.TruncatedUser += samples
		return profile.EndDepth
	case bpf.OnCPUStackEndEND_FAULT:
		losses.UserFaults += samples
		return profile.EndFault
	}
	return profile.EndNone
}
