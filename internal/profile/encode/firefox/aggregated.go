package firefox

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"fulgur/internal/profile"
)

// aggregate is a profile without times that is being written.
type aggregate struct {
	p      *profile.Profile
	tables *tables
	// order holds the samples by task and stack ID, which groups similar stacks.
	order []int
}

func writeProfile(j *jsonWriter, p *profile.Profile, o Options) error {
	if len(p.ValueTypes) == 0 {
		return fmt.Errorf("a profile without values")
	}
	a := &aggregate{p: p, tables: newTables(p, o), order: make([]int, len(p.Samples))}
	for i := range a.order {
		a.order[i] = i
	}
	slices.SortStableFunc(a.order, func(x, y int) int {
		sx, sy := p.Samples[x], p.Samples[y]
		return cmp.Or(cmp.Compare(sx.Task, sy.Task), cmp.Compare(sx.Stack, sy.Stack))
	})
	d := description{
		p: p, interval: interval(p.Meta),
		notes: []string{"aggregated: times in the timeline are shares, in no order"},
	}
	d.values = a.values()
	tracks, err := a.tracks(d.values)
	if err != nil {
		return err
	}
	// The front end drops samples at the very end.
	d.end = max(int64(p.Meta.Duration), a.longest()+d.interval)
	return write(j, a.tables, d, tracks, nil)
}

// interval returns the sampling interval, or a millisecond if it is unknown, since the
// front end requires one.
func interval(m profile.Meta) int64 {
	if m.Frequency > 0 {
		return int64(1e9 / m.Frequency)
	}
	return 1e6
}

// tracks returns a thread for each task, weighted by the value to show first, and a
// pseudo-thread for each other value that has threads. The first value to show is the time or,
// without one, the first value.
func (a *aggregate) tracks(values []Value) ([]*track, error) {
	if a.tasks()*len(a.p.ValueTypes) > maxTracks {
		return nil, fmt.Errorf("more than %d threads with their values: choose one value, or another format", maxTracks)
	}
	first := a.first()
	names := a.p.ValueNames()
	var tracks []*track
	pids, seen := map[string]bool{}, map[string]int{}
	for rest := a.order; len(rest) > 0; {
		task := a.p.Samples[rest[0]].Task
		n := 1
		for n < len(rest) && a.p.Samples[rest[n]].Task == task {
			n++
		}
		samples := rest[:n]
		rest = rest[n:]
		t := a.p.Tasks[task]
		tid := unique(strconv.Itoa(cmp.Or(t.TID, t.PID)), seen)
		k := a.track(t, tid, samples, first)
		k.main = !pids[k.pid]
		pids[k.pid] = true
		tracks = append(tracks, k)
		for v, name := range names {
			if v == first || values[v].Each != 0 {
				continue
			}
			k := a.track(t, tid+"-"+name, samples, v)
			k.name, k.pseudo = name, true
			tracks = append(tracks, k)
		}
	}
	return tracks, nil
}

// first returns the index of the value to show first.
func (a *aggregate) first() int { return max(0, a.time()) }

// values returns the values. The number of samples needs no threads if each sample has the same
// amount of the value to show first.
func (a *aggregate) values() []Value {
	list, first := make([]Value, len(a.p.ValueTypes)), a.first()
	for v, typ := range a.p.ValueTypes {
		list[v] = Value{Type: typ.Type, Unit: typ.Unit}
		if v != first && typ.Unit == "count" && typ.Type == "samples" {
			list[v].Of, list[v].Each = first, a.each(v, first)
		}
	}
	return list
}

// each returns the amount of value of for each of value v, 0 if it is not always the same.
func (a *aggregate) each(v, of int) (each int64) {
	for _, s := range a.p.Samples {
		n, amount := s.Values[v], s.Values[of]
		switch {
		case n == 0 && amount == 0:
			continue
		case n <= 0 || amount <= 0 || amount%n != 0 || each != 0 && each != amount/n:
			return 0
		}
		each = amount / n
	}
	return each
}

// maxTracks limits threads and pseudo-threads, since each task has one for each value. They take
// about 1 KiB each.
const maxTracks = 1 << 20

// tasks returns the number of tasks that have samples.
func (a *aggregate) tasks() (n int) {
	for i, sample := range a.order {
		if i == 0 || a.p.Samples[sample].Task != a.p.Samples[a.order[i-1]].Task {
			n++
		}
	}
	return n
}

// unique returns name, with a number appended if it was seen before.
func unique(name string, seen map[string]int) string {
	seen[name]++
	if n := seen[name]; n > 1 {
		return name + "." + strconv.Itoa(n-1)
	}
	return name
}

// cpu returns a sample's CPU time, if the profile has it. In a profile of waits, the time
// is not CPU time.
func (a *aggregate) cpu(s profile.Sample) int64 {
	if a.time() < 0 {
		return a.length(s)
	}
	for v, typ := range a.p.ValueTypes {
		if typ.IsCPUTime() {
			return max(s.Values[v], 0)
		}
	}
	return 0
}

// track describes a task whose samples are weighted by value v.
func (a *aggregate) track(t profile.Task, tid string, samples []int, v int) *track {
	pid := strconv.Itoa(t.PID)
	if t.PID == 0 {
		// Unknown, so tasks with the same name are combined. No name is like a number.
		if pid = t.Comm; pid != "" && '0' <= pid[0] && pid[0] <= '9' {
			pid = strconv.Quote(pid)
		}
	}
	k := &track{
		name: t.Comm, processName: t.Comm, pid: pid, tid: tid,
		end: -1, processEnd: -1, points: a.points(samples, v), row: a.tables.row, markers: nothing, value: v,
	}
	k.weightType = weightOf(a.p.ValueTypes[v].Unit)
	k.cpu = k.weightType == weightTime
	return k
}

// points yields samples one after the other. Each lasts for its weight in time or,
// without one, for a share of the whole.
func (a *aggregate) points(samples []int, v int) iter.Seq2[point, error] {
	return func(yield func(point, error) bool) {
		now := int64(0)
		for _, i := range samples {
			s := a.p.Samples[i]
			length := max(a.length(s), 0)
			now += length
			if !yield(point{time: now, stack: s.Stack, weight: s.Values[v], cpu: a.cpu(s)}, nil) {
				return
			}
		}
	}
}

// time returns the index of the last value in nanoseconds, which is the sum of any before
// it, or -1 if there is none.
func (a *aggregate) time() int {
	for v, typ := range slices.Backward(a.p.ValueTypes) {
		if typ.Unit == "nanoseconds" {
			return v
		}
	}
	return -1
}

// length returns a sample's duration: its weight in nanoseconds, or a sampling interval
// for each count.
func (a *aggregate) length(s profile.Sample) int64 {
	if v := a.time(); v >= 0 {
		return s.Values[v]
	}
	return s.Values[0] * interval(a.p.Meta)
}

// longest returns the duration of the busiest task.
func (a *aggregate) longest() int64 {
	took := make([]int64, len(a.p.Tasks))
	for _, s := range a.p.Samples {
		took[s.Task] += max(a.length(s), 0)
	}
	if len(took) == 0 {
		return 0
	}
	return slices.Max(took)
}
