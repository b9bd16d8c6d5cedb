package flame

import (
	"slices"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/timeline"
	"fulgur/internal/profile/timeline/timelinetest"
)

// The weights of a recording add up to its values, and waits lie where they were.
func TestTimedProfile(t *testing.T) {
	const ms = int64(time.Millisecond)
	timed, err := newTimedProfile(timelinetest.Recording(t), false)
	if err != nil {
		t.Fatal(err)
	}
	if cpu, off := timed.Total(1), timed.Total(2); cpu != 7*ms || off != 20*ms+1+300_000 {
		t.Errorf("got %d ns on and %d ns off the CPU, want 7 ms and 20.300001 ms", cpu, off)
	}
	sums := make([]int64, len(timed.Samples))
	waits := map[uint32]int64{}
	for at := range timed.entries {
		w := at.weight
		sums[at.sample] += w
		if timed.kinds[at.sample] == offCPU {
			waits[at.step/uint32(20*ms/timed.step)] += w
		}
	}
	for i, s := range timed.Samples {
		want := s.Values[map[eventKind]int{onCPU: valueWall, offCPU: valueWall, blockIO: valueBytes, fault: valueFaults, marker: valueHits, marker + 1: valueHits + 1}[timed.kinds[i]]]
		if sums[i] != want {
			t.Errorf("sample %d of kind %d has %d in its times, want %d", i, timed.kinds[i], sums[i], want)
		}
	}
	// The first wait began after 5.5 ms.
	if want := 20*ms - 5*ms - 500_000; waits[0] < want-1 || waits[0] > want+1 {
		t.Errorf("got %d ns of waits in the first 20 ms, want %d", waits[0], want)
	}
	notes := map[string]bool{}
	for _, s := range timed.Samples {
		f := timed.Stacks[s.Stack].Frame
		if timed.Frames[f].Kind == profile.KindMarker {
			notes[timed.FrameName(f)] = true
		}
	}
	for _, want := range []string{"[preempted]", "[memory without a file]", "[/lib/libc.so.6]", "[nvme0n1 read sync read-ahead]"} {
		if !notes[want] {
			t.Errorf("got the notes %v, want %s", notes, want)
		}
	}
}

// A page of a recording has the table of times, whose entries add up to all events.
func TestTimesTable(t *testing.T) {
	timed, err := newTimedProfile(timelinetest.Recording(t), false)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := newTree(3, maxNodes, timed.Profile)
	if err != nil {
		t.Fatal(err)
	}
	tree.timed = timed
	rows, of := sampleRows(tree)
	table := timed.table(rows, of)
	var entries, weight uint64
	for _, n := range table.counts {
		entries += uint64(n)
	}
	for e := range table.entries {
		weight += uint64(e.weight)
	}
	want := timed.Total(valueWall) + timed.Total(valueBytes) + timed.Total(valueFaults) + timed.Total(valueHits) + timed.Total(valueHits+1)
	if int(entries) != table.header.Entries || int64(weight) != want || timed.Total(valueBytes) == 0 || timed.Total(valueFaults) == 0 || timed.Total(valueHits+1) == 0 {
		t.Errorf("got %d entries of %d with a weight of %d, want %d", entries, table.header.Entries, weight, want)
	}
	// Each row has the thread and the kind of its samples.
	for i, s := range timed.Samples {
		row := of[i]
		thread := timed.line.Threads[rows[row].thread]
		if pid := timed.line.Processes[thread.Process].PID; pid != timed.Tasks[s.Task].PID || rows[row].kind != timed.kinds[i] {
			t.Errorf("sample %d of process %d and kind %d is in the row of process %d and kind %d", i, timed.Tasks[s.Task].PID, timed.kinds[i], pid, rows[row].kind)
		}
	}
}

// The unit of times becomes coarser before there are too many entries. No weight is lost.
func TestManyTimes(t *testing.T) {
	const samples, limit, length = 3, 1000, int64(2000)
	check := func(timed *timedProfile, want int64) {
		t.Helper()
		timed.bound()
		entries, sums := 0, make([]int64, samples)
		for e := range timed.entries {
			entries++
			sums[e.sample] += e.weight
		}
		if entries > limit || timed.step < samples*2 || int64(timed.steps)*timed.step < length || len(timed.spans) > limit/spanShare {
			t.Errorf("got %d spans and %d entries, %d steps of %d; want at most %d, for %d", len(timed.spans), entries, timed.steps, timed.step, limit, length)
		}
		for s, sum := range sums {
			if sum != want {
				t.Errorf("sample %d has a weight of %d, want %d", s, sum, want)
			}
		}
	}
	long := &timedProfile{step: 1, steps: int(length), limit: limit, room: limit / spanShare}
	short := &timedProfile{step: 1, steps: int(length), limit: limit, room: limit / spanShare}
	for s := range uint32(samples) {
		long.add(s, 0, length, length)
		for at := range length {
			short.add(s, at, 1, 2)
		}
	}
	if n := len(long.spans); n != samples {
		t.Errorf("got %d spans, want one for each sample", n)
	}
	check(long, length)
	check(short, 2*length)
	// Many samples with a few events each keep their times.
	many := &timedProfile{step: 1, steps: int(length), limit: limit, room: limit / spanShare}
	for at := range int64(3) {
		for s := range uint32(limit / 5) {
			many.add(s, at*length/3, 1, 1)
		}
	}
	if many.bound(); many.steps < 2 {
		t.Errorf("got %d steps of %d, want several", many.steps, many.step)
	}
	// More samples than entries, in one step.
	timed := &timedProfile{step: 1, steps: 1, limit: limit, room: limit / spanShare}
	for s := range uint32(3 * limit) {
		timed.add(s, 0, 1, 1)
	}
	timed.bound()
	if n := len(timed.spans); n != 3*limit {
		t.Errorf("got %d spans, want one for each sample", n)
	}
}

// A page of markers without samples has their value, and none of those that the profile
// would have for samples.
func TestTimedMarkers(t *testing.T) {
	line := eventTimes(t, int64(10*time.Second), func(r *timeline.Recorder, thread profile.ThreadID, typ profile.MarkerTypeID, stacks []profile.StackID) {
		for at := range int64(3) {
			if err := r.AddMarker(thread, profile.Marker{Time: at, Type: typ, Stack: stacks[1], Weight: 100}); err != nil {
				t.Fatal(err)
			}
		}
	})
	p := encodetest.Typical()
	p.ValueTypes = []profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}, line.MarkerTypes[0].Value()}
	timed, err := Options{Value: 1, Times: line}.timed(p)
	want := []profile.ValueType{{Type: "samples", Unit: "count"}, line.MarkerTypes[0].Value()}
	if err != nil || !slices.Equal(timed.ValueTypes, want) || timed.Total(0) != 3 || timed.Total(1) != 300 {
		t.Errorf("got values %v, error %v; want %v, 3 and 300", timed.ValueTypes, err, want)
	}
}

// eventTimes returns a recording of 10 s of a thread whose samples count an event besides
// time, and markers with a weight. add adds samples to it.
func eventTimes(t *testing.T, end int64, add func(r *timeline.Recorder, thread profile.ThreadID, typ profile.MarkerTypeID, stacks []profile.StackID)) *profile.Timeline {
	t.Helper()
	p, stacks := encodetest.TypicalStacks()
	p.Tasks, p.Samples = nil, nil
	r, err := timeline.NewRecorder(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	thread := r.Thread(r.Process(42, 0), 42, 0)
	r.NameThread(thread, 0, "tar")
	add(r, thread, r.AddMarkerType(profile.MarkerType{Name: "misses", Event: "misses", Unit: "count"}), stacks)
	line, err := r.Timeline(p, end, func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	line.Sampled, line.Interval = profile.ValueType{Type: "cycles", Unit: "count"}, int64(10*time.Millisecond)
	return line
}

// Several events have a value each, which adds up their weights. A sample that stands for
// several intervals lies in all of them.
func TestSeveralEvents(t *testing.T) {
	const s, ms = int64(time.Second), int64(time.Millisecond)
	line := eventTimes(t, 10*s, func(r *timeline.Recorder, thread profile.ThreadID, typ profile.MarkerTypeID, stacks []profile.StackID) {
		for _, err := range []error{
			r.AddOnCPU(thread, profile.OnCPU{Time: s, Stack: stacks[1], Weight: 10 * ms, Amount: 1000}),
			r.AddOnCPU(thread, profile.OnCPU{Time: 5 * s, Stack: stacks[2], Weight: 2 * s, Amount: 7}),
			r.AddMarker(thread, profile.Marker{Time: 2 * s, Type: typ, Stack: stacks[1], Weight: 300}),
			r.AddMarker(thread, profile.Marker{Time: 3 * s, Type: typ, Stack: stacks[1], Weight: 100}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	timed, err := newTimedProfile(line, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []profile.ValueType{{Type: "samples", Unit: "count"}, line.Sampled, {Type: "misses", Unit: "count"}}
	if !slices.Equal(timed.ValueTypes, want) || timed.Total(0) != 4 || timed.Total(1) != 1007 || timed.Total(2) != 400 {
		t.Fatalf("got values %v with totals %d, %d, %d; want %v with 4, 1007, 400", timed.ValueTypes, timed.Total(0), timed.Total(1), timed.Total(2), want)
	}
	seconds := map[int64]int64{} // weights of the second sample
	for e := range timed.entries {
		if timed.Samples[e.sample].Values[1] == 7 {
			seconds[int64(e.step)*timed.step/s] += e.weight
		}
	}
	if len(seconds) != 3 || seconds[3] < s-20*ms || seconds[4] < s-20*ms {
		t.Errorf("got weights by second %v, want 2 s until the start of second 5", seconds)
	}
	// A value called samples is not there twice.
	line.Sampled = profile.ValueType{Type: "samples", Unit: "count"}
	if timed, err = newTimedProfile(line, false); err != nil || !slices.Equal(timed.ValueTypes, []profile.ValueType{line.Sampled, want[2]}) || timed.Total(0) != 1007 {
		t.Errorf("got values %v: %v; want samples with their amounts, and misses", timed.ValueTypes, err)
	}
}

// Neither the length of a recording nor the number of samples in it makes a page too large.
func TestTimesLimits(t *testing.T) {
	const samples = 50
	line := eventTimes(t, 1<<62, func(r *timeline.Recorder, thread profile.ThreadID, _ profile.MarkerTypeID, stacks []profile.StackID) {
		for i := range int64(samples) {
			if err := r.AddOnCPU(thread, profile.OnCPU{Time: i << 56, Stack: stacks[1+int(i)%(len(stacks)-1)], Weight: 1, Amount: 1}); err != nil {
				t.Fatal(err)
			}
		}
	})
	timed, err := newTimedProfile(line, false)
	if err != nil {
		t.Fatal(err)
	}
	if timed.steps > maxTimes || timed.Total(1) != samples {
		t.Errorf("got %d steps and a total of %d, want at most %d steps and %d", timed.steps, timed.Total(1), maxTimes, samples)
	}
	b := newTimedBuilder(line)
	b.most = 3
	if err := b.addThread(0, false); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, s := range b.Samples {
		total += s.Values[valueCPU]
	}
	last := b.Samples[len(b.Samples)-1]
	if len(b.Samples) != 4 || total != samples || b.FrameName(b.Stacks[last.Stack].Frame) != profile.Truncated || b.Losses[profile.LossTooMany] != uint64(last.Values[0]) {
		t.Errorf("got %d samples with a total of %d, %d of them lost, the last %s; want 4 with %d, the last %s",
			len(b.Samples), total, b.Losses[profile.LossTooMany], b.FrameName(b.Stacks[last.Stack].Frame), samples, profile.Truncated)
	}
}
