package session

import (
	"slices"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/containers"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/unwind/stackend"
)

// stackLost is the frame of a stack whose trace was lost.
const stackLost = "[stack lost]"

// cached returns a function with the results of f, which it calls once for each argument.
func cached[K comparable, V any](f func(K) V) func(K) V {
	known := map[K]V{}
	return func(k K) V {
		v, ok := known[k]
		if !ok {
			v = f(k)
			known[k] = v
		}
		return v
	}
}

// openProcess is a process about which the rules had to decide after its samples.
type openProcess struct {
	rules uint64 // that may match
	owner *containers.Membership
}

// buildProfile makes a profile with names from traces and counts. lost are the
// counts without a trace. leaves reports whether rules leave out a process, given those that may match
// it and its owner; buildProfile also returns the samples of such processes. recorded, if not nil, adds its stacks to the profile.
func buildProfile(what source.Subject, store *stacks.Store, lost map[stacks.Key]stacks.Values, names *naming.Names, meta profile.Meta, losses profile.Losses, leaves func(may uint64, owner *containers.Membership) bool, recorded *recorder) (_ *profile.Profile, excluded Excluded) {
	b := newBuild(what, store, meta, losses, leaves)
	b.Expect(len(store.Frames), len(store.Samples))
	b.add(store, lost, names, recorded)
	return b.profile(), b.excluded
}

// build makes a profile of one or several stores.
type build struct {
	*profile.Builder
	what     source.Subject
	values   []source.Value
	meta     profile.Meta
	losses   profile.Losses
	excluded Excluded
	later    bool // some names are left for later

	owner      func(*containers.Membership) profile.OwnerID
	labels     func(*stacks.Labels) profile.LabelsID
	leavesOpen func(openProcess) bool
}

// newBuild begins a profile. store is one of its stores.
func newBuild(what source.Subject, store *stacks.Store, meta profile.Meta, losses profile.Losses, leaves func(may uint64, owner *containers.Membership) bool) *build {
	if f, ok := what.(source.Finisher); ok {
		f.Finish(store)
	}
	values := what.Values(store)
	b := &build{Builder: profile.NewBuilder(source.Types(values)...), what: what, values: values, meta: meta, losses: losses}
	b.owner = cached(func(m *containers.Membership) profile.OwnerID {
		if store.Owners == nil {
			return 0
		}
		return b.Owner(m.Owner())
	})
	b.labels = cached(func(l *stacks.Labels) profile.LabelsID { return b.Labels(l.List()) })
	b.leavesOpen = cached(func(p openProcess) bool { return leaves(p.rules, p.owner) })
	return b
}

// add adds the samples of a store, and the stacks of recorded if it is not nil.
func (b *build) add(store *stacks.Store, lost map[stacks.Key]stacks.Values, names *naming.Names, recorded *recorder) {
	all := make([]int64, len(b.values))
	// The result of sums is valid until the next call.
	sums := func(source uint8, detail uint64, counted stacks.Values) []int64 {
		for i, v := range b.values {
			all[i] = v.Sum(source, detail, counted)
		}
		return all
	}
	p := naming.NewStackBuilder(b.Builder, store, names)
	cpu := func(n uint32) int {
		if b.meta.PerCPU {
			return int(n)
		}
		return -1
	}
	cpuTime := slices.IndexFunc(b.values, func(v source.Value) bool { return v.IsCPUTime() })
	labeler := labelerOf(b.what)
	for counted, value := range store.Samples {
		trace := store.Traces[counted.Trace]
		if trace.Open && b.leavesOpen(openProcess{trace.Rules, trace.Owner}) {
			all := sums(counted.Source, counted.Detail, value)
			b.excluded.Samples += uint64(all[0])
			if cpuTime >= 0 {
				b.excluded.CPU += time.Duration(all[cpuTime])
			}
			continue
		}
		set := b.labels(trace.Labels)
		if trace.Unlabeled || set == 0 && len(trace.Labels.List()) > 0 {
			b.losses[profile.LossUnlabeled] += value.Samples()
		}
		if labeler != nil {
			if own := labeler.Labels(p, counted); len(own) > 0 {
				set = b.Labels(profile.NewLabels(append(own, trace.Labels.List()...)))
			}
		}
		b.Add(profile.Sample{
			Stack:  b.what.Place(p, counted),
			Task:   b.Task(profile.Task{PID: int(trace.PID), TID: int(counted.TID), Comm: trace.Name(), Owner: b.owner(trace.Owner), Labels: set}),
			CPU:    cpu(counted.CPU),
			End:    end(p, trace, value.Samples(), &b.losses),
			Values: sums(counted.Source, counted.Detail, value),
		})
	}
	for key, value := range lost {
		b.losses[profile.LossTraces] += value.Samples()
		b.Add(profile.Sample{
			Stack:  p.Mark(0, stackLost),
			Task:   b.Task(profile.Task{TID: int(key.TID), Comm: "[unknown]", Owner: b.owner(nil)}),
			CPU:    cpu(key.CPU),
			End:    stackend.Lost,
			Values: sums(key.Source, key.Detail, value),
		})
	}
	if recorded != nil {
		recorded.place(p)
	}
	b.later = b.later || names.Later
}

// profile ends the profile.
func (b *build) profile() *profile.Profile {
	built := b.Profile(b.meta, b.losses)
	built.CountUnnamed(b.later)
	return built
}

// end converts the reason why a stack ended, and counts the samples of
// truncated stacks.
func end(p *naming.StackBuilder, trace stacks.Trace, samples uint64, losses *profile.Losses) stackend.End {
	if trace.Cut {
		losses[profile.LossCrowded] += samples
	}
	if trace.KernelEnd == stackend.Depth {
		losses[profile.LossTruncatedKernel] += samples
	}
	// Without tables, a broken chain of frame pointers is expected.
	if trace.Broken && trace.UserEnd != stackend.NotReady || trace.UserEnd == stackend.Broken {
		losses[p.Broken(trace.Leaf)] += samples
		return stackend.Broken
	}
	if p.HasLeft(trace.Leaf) {
		return stackend.None
	}
	end := trace.UserEnd.InProfile()
	if !end.Cut() && p.Omits(trace.Leaf) {
		end = stackend.Omitted
	}
	if cause, ok := describe.OfEnd(end); ok {
		losses[cause] += samples
	}
	return end
}
