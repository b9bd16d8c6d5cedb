package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks/stackstest"
)

// reducible is a source that records its reductions.
type reducible struct {
	*counting
	reductions *[]uint64
}

func (r reducible) Reduce(by uint64) error {
	*r.reductions = append(*r.reductions, by)
	return nil
}

// Limits apply to the window after the one at whose end they were asked for, and windows say
// so. A name that is known needs no look-up.
func TestWindowsLimits(t *testing.T) {
	var got collected
	w := newTestWindows(t, time.Second, stackstest.Own(t), got.take)
	next := Limits{}
	w.run.options.Limits = func() Limits { return next }
	var reductions []uint64
	source := []source.Source{reducible{newCounting(1, 5), &reductions}}
	begin := time.Now()
	w.start = begin
	for i, l := range []Limits{{Reduction: 4}, {Reduction: 4, NoSymbols: true, LessMemory: true}, {NoSymbols: true}, {}, {}} {
		next = l
		w.run.sources = source
		if err := w.closeAt(begin.Add(time.Duration(i+1) * time.Second)); err != nil {
			t.Fatal(err)
		}
		w.run.sources = nil
		if err := (<-w.run.queue.items).do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint64{4, 1}; !slices.Equal(reductions, want) {
		t.Errorf("got the reductions %d, want %d", reductions, want)
	}
	var texts []string
	for _, w := range got {
		m := w.Profile.Meta
		texts = append(texts, fmt.Sprint(m.Frequency, m.RequestedFrequency, m.Reduction, m.NamesOmitted))
	}
	if want := []string{"49 0 0 false", "13 49 4 false", "13 49 4 true", "49 0 0 true", "49 0 0 false"}; !slices.Equal(texts, want) {
		t.Errorf("got windows with %q, want %q", texts, want)
	}
}
