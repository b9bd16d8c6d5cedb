package blockio

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
)

// write is a synchronous write to the disk 254:3.
const (
	disk  = 254<<20 | 3
	write = 1 | uint32(bpf.BlockIORequestFlagFLAG_SYNC)
)

// asWrite fails the test unless key describes that write.
func asWrite(t *testing.T, key stacks.Key) {
	t.Helper()
	got := ParseDetail(key.Detail)
	if want := (Request{stacks.Device{Major: 254, Minor: 3}, Operation(write)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Operation.Op() != profile.BlockWrite || got.Operation.Flags() != profile.FlagSync {
		t.Errorf("got operation %v with flags %v, want a synchronous write", got.Operation.Op(), got.Operation.Flags())
	}
}

// A request has the same values as a count and as an event.
func TestCounted(t *testing.T) {
	key, value := counted(
		bpf.BlockIOCountKey{Id: 1, File: 2, Cgroup: 3, Device: disk, Operation: write, Tid: 4, Cpu: 5},
		bpf.BlockIOCountValue{Requests: 1, Bytes: 4096, Queued: 30, InDevice: 700},
	)
	asWrite(t, key)
	want := stacks.Key{ID: 1, File: 2, Cgroup: 3, TID: 4, CPU: 5, Detail: key.Detail}
	if d := cmp.Diff(want, key); d != "" {
		t.Error("key (-want +got):\n" + d)
	}
	if want := (stacks.Values{1, 4096, 30, 700, 730}); value != want {
		t.Errorf("got value %+v, want %+v", value, want)
	}
	event, one := Counted(&Event{Id: 1, File: 2, Device: disk, Operation: write, Bytes: 4096, Born: 1000, Issued: 1030, Completed: 1730})
	want.Cgroup, want.TID, want.CPU = 0, 0, 0 // a timeline records these elsewhere
	if d := cmp.Diff(want, event); d != "" || one != value {
		t.Errorf("got event %+v, want %+v; key (-want +got):\n%s", one, value, d)
	}
}

// At the end of a measurement, a request that the device handles counts with its queue
// time; a queued request does not count.
func TestUnfinished(t *testing.T) {
	state := bpf.BlockIORequestState{
		Id: 1, File: 2, Cgroup: 3, Device: disk, Operation: write, Tid: 4, Cpu: 5,
		Bytes: 4096, Born: 1000, Issued: 1030,
	}
	for _, o := range []probe.Options{{}, {ByThread: true}, {ByCPU: true}, {ByThread: true, ByCPU: true}} {
		key, value, given := unfinished(&state, &o)
		asWrite(t, key)
		want := stacks.Key{ID: 1, File: 2, Cgroup: 3, Detail: key.Detail}
		if o.ByThread {
			want.TID = 4
		}
		if o.ByCPU {
			want.CPU = 5
		}
		if d := cmp.Diff(want, key); d != "" || !given {
			t.Errorf("counted: %v; key (-want +got):\n%s", given, d)
		}
		if want := (stacks.Values{1, 4096, 30, 0, 30}); value != want {
			t.Errorf("got value %+v, want %+v", value, want)
		}
	}
	queued, foreign := state, state
	queued.Issued, foreign.Id = 0, 0
	for name, state := range map[string]bpf.BlockIORequestState{"in the queue": queued, "not of the target": foreign} {
		if _, _, given := unfinished(&state, new(probe.Options)); given {
			t.Errorf("a request %s counts, want none", name)
		}
	}
}
