package flame

import (
	"testing"
	"time"

	"fulgur/internal/profile"
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
	for at, w := range timed.weights {
		sums[at.sample] += w
		if timed.kinds[at.sample] == offCPU {
			waits[at.step] += w
		}
	}
	for i, s := range timed.Samples {
		if want := s.Values[3]; sums[i] != want {
			t.Errorf("sample %d has %d ns in its times, want %d", i, sums[i], want)
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
	if !notes["[preempted]"] {
		t.Errorf("got the notes %v, want one of a preempted thread", notes)
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
	table := timed.table(len(rows), of)
	var entries, weight uint64
	for _, n := range table.counts {
		entries += n
	}
	for _, w := range table.weights {
		weight += w * uint64(table.header.Scale)
	}
	if int(entries) != table.header.Entries || int64(weight) != timed.Total(3) {
		t.Errorf("got %d entries of %d with %d ns, want %d ns", entries, table.header.Entries, weight, timed.Total(3))
	}
}
