package session

import (
	"bytes"

	"fulgur/bpf"
	"fulgur/internal/profile"
	"fulgur/internal/stacks"
)

// buildProfile turns bodies and counts into a profile with names.
func buildProfile(store *stacks.Store, counts map[stacks.Key]stacks.Value, names *names, types []profile.ValueType, meta profile.Meta, losses profile.Losses) *profile.Profile {
	b := profile.NewBuilder(types...)
	tree := placeStacks(b, store, names)
	losses.UnresolvedFrames = names.unresolved
	for key, value := range counts {
		body, known := store.Body(key.Id)
		sample := profile.Sample{CPU: -1, Values: []int64{int64(value.Samples), int64(value.Weight)}}
		if meta.PerCPU {
			sample.CPU = int(key.Cpu)
		}
		task := profile.Task{TID: int(key.Tid)}
		if !known {
			losses.Bodies += value.Samples
			sample.End = profile.EndLost
			sample.Stack = b.Push(0, b.Frame(profile.Frame{
				Function: b.Function(profile.Function{Name: "[stack lost]", SystemName: "[stack lost]"}),
				Kind:     profile.KindMarker,
			}))
			task.Comm = "[unknown]"
		} else {
			comm, _, _ := bytes.Cut(body.Comm[:], []byte{0})
			task.PID, task.Comm = int(body.PID), string(comm)
			sample.Stack = tree.stacks[body.Leaf]
			sample.End = end(body, value.Samples, &losses)
			if tree.unresolved[body.Leaf] {
				losses.Unresolved += value.Samples
			}
		}
		sample.Task = b.Task(task)
		b.Add(sample)
	}
	return b.Profile(meta, losses)
}

// end translates why a stack ended and counts samples of cut stacks.
func end(body stacks.Body, samples uint64, losses *profile.Losses) profile.End {
	if body.KernelEnd == bpf.OnCPUStackEndEND_DEPTH {
		losses.TruncatedKernel += samples
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

// tree maps the store's nodes to the profile's stacks.
type tree struct {
	stacks     []profile.StackID
	unresolved []bool // whether a frame of the stack has no name
}

func placeStacks(b *profile.Builder, store *stacks.Store, names *names) tree {
	placed := make([][]profile.FrameID, len(store.Frames))
	for i := range store.Frames {
		placed[i] = names.place(b, stacks.FrameID(i))
	}
	t := tree{
		stacks:     make([]profile.StackID, len(store.Nodes)),
		unresolved: make([]bool, len(store.Nodes)),
	}
	// A parent's identifier is lower than its children's.
	for i, node := range store.Nodes[1:] {
		at := t.stacks[node.Parent]
		for _, f := range placed[node.Frame] {
			at = b.Push(at, f)
		}
		t.stacks[i+1] = at
		t.unresolved[i+1] = t.unresolved[node.Parent] || len(names.found[node.Frame]) == 0
	}
	return t
}
