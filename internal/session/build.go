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
	if f, ok := what.(source.Finisher); ok {
		f.Finish(store)
	}
	values := what.Values(store)
	all := make([]int64, len(values))
	// The result of sums is valid until the next call.
	sums := func(source uint8, detail uint64, counted stacks.Values) []int64 {
		for i, v := range values {
			all[i] = v.Sum(source, detail, counted)
		}
		return all
	}
	b := profile.NewBuilder(source.Types(values)...)
	b.Expect(len(store.Frames), len(store.Samples))
	p := naming.NewStackBuilder(b, store, names)
	cpu := func(n uint32) int {
		if meta.PerCPU {
			return int(n)
		}
		return -1
	}
	owner := cached(func(m *containers.Membership) profile.OwnerID {
		if store.Owners == nil {
			return 0
		}
		return b.Owner(m.Owner())
	})
	leavesOpen := cached(func(p openProcess) bool { return leaves(p.rules, p.owner) })
	cpuTime := slices.IndexFunc(values, func(v source.Value) bool { return v.IsCPUTime() })
	labels := cached(func(l *stacks.Labels) profile.LabelsID { return b.Labels(l.List()) })
	labeler := labelerOf(what)
	for counted, value := range store.Samples {
		trace := store.Traces[counted.Trace]
		if trace.Open && leavesOpen(openProcess{trace.Rules, trace.Owner}) {
			all := sums(counted.Source, counted.Detail, value)
			excluded.Samples += uint64(all[0])
			if cpuTime >= 0 {
				excluded.CPU += time.Duration(all[cpuTime])
			}
			continue
		}
		set := labels(trace.Labels)
		if trace.Unlabeled || set == 0 && len(trace.Labels.List()) > 0 {
			losses[profile.LossUnlabeled] += value.Samples()
		}
		if labeler != nil {
			if own := labeler.Labels(p, counted); len(own) > 0 {
				set = b.Labels(profile.NewLabels(append(own, trace.Labels.List()...)))
			}
		}
		b.Add(profile.Sample{
			Stack:  what.Place(p, counted),
			Task:   b.Task(profile.Task{PID: int(trace.PID), TID: int(counted.TID), Comm: trace.Name(), Owner: owner(trace.Owner), Labels: set}),
			CPU:    cpu(counted.CPU),
			End:    end(p, trace, value.Samples(), &losses),
			Values: sums(counted.Source, counted.Detail, value),
		})
	}
	for key, value := range lost {
		losses[profile.LossTraces] += value.Samples()
		b.Add(profile.Sample{
			Stack:  p.Mark(0, stackLost),
			Task:   b.Task(profile.Task{TID: int(key.TID), Comm: "[unknown]", Owner: owner(nil)}),
			CPU:    cpu(key.CPU),
			End:    stackend.Lost,
			Values: sums(key.Source, key.Detail, value),
		})
	}
	if recorded != nil {
		recorded.place(p)
	}
	built := b.Profile(meta, losses)
	built.CountUnnamed(names.Later)
	return built, excluded
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
