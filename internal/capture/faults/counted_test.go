package faults

import (
	"os"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks"
)

// An entry of a count map keeps minor and major faults and their times apart, and records
// the kind of page.
func TestCounted(t *testing.T) {
	key, value := counted(
		bpf.FaultsCountKey{Id: 1, File: 2, Page: 3, Tid: 4, Cpu: 5, Kind: uint16(File)},
		bpf.FaultsCountValue{Samples: 10, Minor: 70, Major: 30, Latency: 9000},
	)
	if want := (Page{File, 3 * uint64(os.Getpagesize())}); ParseDetail(key.Detail) != want {
		t.Errorf("got page %+v, want %+v", ParseDetail(key.Detail), want)
	}
	if want := (stacks.Key{ID: 1, File: 2, TID: 4, CPU: 5, Detail: key.Detail}); key != want {
		t.Errorf("got key %+v, want %+v", key, want)
	}
	if want := (stacks.Values{10, 70, 30, 9000, 100}); value != want {
		t.Errorf("got value %+v, want %+v", value, want)
	}
}

// The period of a fault event is its weight: each fault has its own latency and is either
// minor or major.
func TestCountedEvent(t *testing.T) {
	for name, test := range map[string]struct {
		event Event
		want  stacks.Values
	}{
		"minor":           {Event{Period: 1, Latency: 500}, stacks.Values{1, 1, 0, 500, 1}},
		"major":           {Event{Period: 1, Latency: 500, Major: 1}, stacks.Values{1, 0, 1, 500, 1}},
		"every tenth":     {Event{Period: 10, Latency: 500}, stacks.Values{1, 10, 0, 5000, 10}},
		"of unknown time": {Event{Period: 10, Major: 1}, stacks.Values{1, 0, 10, 0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			test.event.Id, test.event.File, test.event.Kind = 1, 2, uint16(Anonymous)
			test.event.Tid, test.event.Cpu = 4, 5 // a timeline records these elsewhere
			key, value := Counted(&test.event)
			if want := (stacks.Key{ID: 1, File: 2, Detail: Page{Kind: Anonymous}.detail()}); key != want {
				t.Errorf("got key %+v, want %+v", key, want)
			}
			if value != test.want {
				t.Errorf("got %+v, want %+v", value, test.want)
			}
		})
	}
}
