package session

import (
	"bytes"

	"fulgur/bpf"
	"fulgur/internal/profile"
	"fulgur/internal/stacks"
)

// buildProfile turns bodies and counts into a profile with names. lost are the
// counts whose body never arrived.
func buildProfile(store *stacks.Store, lost map[stacks.Key]stacks.Value, names *names, types []profile.ValueType, meta profile.Meta, losses profile.Losses) *profile.Profile {
	b := profile.NewBuilder(types...)
	tree := placeStacks(b, store, names)
	losses.UnresolvedFrames = names.unresolved
	cpu := func(n uint32) int {
		if meta.PerCPU {
			return int(n)
		}
		return -1
	}
	for counted, value := range store.Samples {
		body := store.Bodies[counted.Body]
		comm, _, _ := bytes.Cut(body.Comm[:], []byte{0})
		if tree.unresolved[body.Leaf] {
			losses.Unresolved += value.Samples
		}
		b.Add(profile.Sample{
			Stack:  tree.stacks[body.Leaf],
			Task:   b.Task(profile.Task{PID: int(body.PID), TID: int(counted.TID), Comm: string(comm)}),
			CPU:    cpu(counted.CPU),
			End:    end(body, value.Samples, &losses),
			Values: values(value),
		})
	}
	for key, value := range lost {
		losses.Bodies += value.Samples
		b.Add(profile.Sample{
			Stack: b.Push(0, b.Frame(profile.Frame{
				Function: b.Function(profile.Function{Name: "[stack lost]", SystemName: "[stack lost]"}),
				Kind:     profile.KindMarker,
			})),
			Task:   b.Task(profile.Task{TID: int(key.Tid), Comm: "[unknown]"}),
			CPU:    cpu(key.Cpu),
			End:    profile.EndLost,
			Values: values(value),
		})
	}
	return b.Profile(meta, losses)
}

// values are a sample's, as run.valueTypes names them.
func values(v stacks.Value) []int64 { return []int64{int64(v.Samples), int64(v.Weight)} }

// end translates why a stack ended and counts samples of cut stacks.
func end(body stacks.Body, samples uint64, losses *profile.Losses) profile.End {
	if body.KernelEnd == bpf.OnCPUStackEndEND_DEPTH {
		losses.TruncatedKernel += samples
	}
	// Without tables, it is no wonder that the chain of frame pointers is broken.
	if body.Broken && body.UserEnd != bpf.OnCPUStackEndEND_NOT_READY {
		losses.BrokenUser += samples
		return profile.EndBroken
	}
	end := ends[body.UserEnd]
	if count := cutBy(losses, end); count != nil {
		*count += samples
	}
	return end
}

// ends are the profile's words for the kernel side's.
var ends = map[bpf.OnCPUStackEnd]profile.End{
	bpf.OnCPUStackEndEND_FRAME_POINTER: profile.EndFramePointer,
	bpf.OnCPUStackEndEND_DEPTH:         profile.EndDepth,
	bpf.OnCPUStackEndEND_FAULT:         profile.EndFault,
	bpf.OnCPUStackEndEND_COMPLETE:      profile.EndComplete,
	bpf.OnCPUStackEndEND_NO_MAPPING:    profile.EndNoMapping,
	bpf.OnCPUStackEndEND_NO_TABLE:      profile.EndNoTable,
	bpf.OnCPUStackEndEND_UNSUPPORTED:   profile.EndUnsupported,
	bpf.OnCPUStackEndEND_REGISTER:      profile.EndUnsupported,
	bpf.OnCPUStackEndEND_NOT_GROWING:   profile.EndNotGrowing,
	bpf.OnCPUStackEndEND_NOT_READY:     profile.EndNotReady,
	bpf.OnCPUStackEndEND_PAGE:          profile.EndEvicted,
	bpf.OnCPUStackEndEND_NO_CHAIN:      profile.EndBroken,
}

// cutBy returns the count of samples whose user stack ends so, nil if such an end
// is no loss.
func cutBy(losses *profile.Losses, e profile.End) *uint64 {
	switch e {
	case profile.EndBroken:
		return &losses.BrokenUser
	case profile.EndDepth:
		return &losses.TruncatedUser
	case profile.EndFault:
		return &losses.UserFaults
	case profile.EndNoMapping:
		return &losses.NoMapping
	case profile.EndNoTable:
		return &losses.NoTable
	case profile.EndUnsupported:
		return &losses.Unsupported
	case profile.EndNotGrowing:
		return &losses.NotGrowing
	case profile.EndNotReady:
		return &losses.NotReady
	case profile.EndEvicted:
		return &losses.Evicted
	}
	return nil
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
