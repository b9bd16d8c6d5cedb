package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks/stackstest"
)

// rated is a source that records its rates.
type rated struct {
	*counting
	rates *[]uint64
}

func (r rated) SetFrequency(hz uint64) error {
	*r.rates = append(*r.rates, hz)
	return nil
}

// Limits apply to the window after the one at whose end they were asked for, and windows say
// so. A name that is known needs no look-up.
func TestWindowsLimits(t *testing.T) {
	var got collected
	w := newTestWindows(t, time.Second, stackstest.Own(t), got.take)
	next := Limits{}
	w.options.Limits = func() Limits { return next }
	var rates []uint64
	source := []source.Source{rated{newCounting(1, 5), &rates}}
	begin := time.Now()
	w.begin = begin
	for i, l := range []Limits{{Frequency: 9}, {Frequency: 9, NoSymbols: true, LessMemory: true}, {NoSymbols: true}, {}, {}} {
		next = l
		w.sources = source
		if err := w.turnAt(begin.Add(time.Duration(i+1) * time.Second)); err != nil {
			t.Fatal(err)
		}
		w.sources = nil
		if err := (<-w.items).item(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint64{9, 49}; !slices.Equal(rates, want) {
		t.Errorf("got the rates %d, want %d", rates, want)
	}
	var texts []string
	for _, w := range got {
		m := w.Profile.Meta
		texts = append(texts, fmt.Sprint(m.Frequency, m.RequestedFrequency, m.NamesOmitted))
	}
	if want := []string{"49 0 false", "9 49 false", "9 49 true", "49 0 true", "49 0 false"}; !slices.Equal(texts, want) {
		t.Errorf("got windows with %q, want %q", texts, want)
	}
}
