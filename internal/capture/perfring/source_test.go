package perfring

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/unwindtest"
)

// Frames come back as from the kernel side, see unwindtest.AsRecorded.
func TestWord(t *testing.T) {
	frames := []unwind.Frame{
		{PC: 0x401000, Exact: true}, {PC: 0x402000}, {PC: 0x403000, Exact: true}, {PC: 0xffffffffff600000}, {PC: 1<<63 | 5},
	}
	for i, want := range unwindtest.AsRecorded(frames) {
		got := word(frames[i], i)
		exact := i == 0 || got&bpf.FrameExact != 0 && want.Exact
		if pc := got &^ bpf.FrameExact; pc != want.PC&^bpf.FrameExact || exact != want.Exact {
			t.Errorf("frame %d, %v: got %#x, want %v", i, frames[i], got, want)
		}
	}
}

// The markers in a call chain are not frames.
func TestChain(t *testing.T) {
	var b []byte
	for _, v := range []uint64{math.MaxUint64 - 511, 0x401000, 0x402000} {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	want := []unwind.Frame{{PC: 0x401000, Exact: true}, {PC: 0x402000}}
	if diff := cmp.Diff(want, chain(b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := chain(nil); len(got) > 0 {
		t.Errorf("got %v of no call chain", got)
	}
}

// testSource returns a source without events.
func testSource(t target.Target) *Source {
	s := &Source{
		options: Options{Target: t}, tasks: map[int][16]byte{}, execs: map[int]uint64{}, members: map[int]bool{}, remaps: map[int]uint64{},
	}
	s.events = &events{threads: map[int]bool{7: true, 8: true}, owners: map[uint64]int{1: 7, 2: 8}}
	s.began.Store(5)
	for _, pid := range t.PIDs {
		s.members[pid] = true
	}
	return s
}

// Children belong to the target if it includes them. Samples have the name that their thread had at the time, and each
// exec begins an epoch.
func TestFollow(t *testing.T) {
	for _, children := range []bool{false, true} {
		s := testSource(target.Target{Scope: target.Processes, PIDs: []int{7}, Children: children})
		take := func(pid, tid int) {
			s.take(perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, ID: uint64(min(tid-6, 2)), PID: pid, TID: tid, Period: 10})
		}
		s.take(perfevent.Sample{Stamp: perfevent.Stamp{Time: 4}, ID: 1, PID: 7, TID: 7, Period: 10}) // before the start
		s.follow(perfevent.Comm{PID: 7, TID: 7, Comm: "first"})
		take(7, 7)
		s.follow(perfevent.Comm{PID: 7, TID: 7, Comm: "a name of more than 15 bytes", Exec: true})
		take(7, 7)
		s.follow(perfevent.Fork{PID: 7, PPID: 7, TID: 8, PTID: 7})
		s.follow(perfevent.Comm{PID: 7, TID: 8, Comm: "thread"})
		take(7, 8)
		s.take(perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, ID: 1, PID: 7, TID: 8, Period: 10}) // by its parent's event, too
		s.follow(perfevent.Fork{PID: 9, PPID: 7, TID: 9, PTID: 8})
		take(9, 9)
		s.follow(perfevent.Exit{PID: 9, PPID: 7, TID: 9, PTID: 7})
		take(9, 9)
		type seen struct {
			PID   int
			Comm  string
			Epoch uint64
		}
		want := []seen{{7, "first", 0}, {7, "a name of more ", 1}, {7, "thread", 1}}
		if children {
			want = append(want, seen{9, "thread", 1})
		}
		var got []seen
		for _, q := range s.queue {
			n := 0
			for q.comm[n] != 0 {
				n++
			}
			got = append(got, seen{q.PID, string(q.comm[:n]), q.epoch})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("children %v (-want +got):\n%s", children, diff)
		}
		if s.double != 10 {
			t.Errorf("got samples of %d ns by two events, want 10", s.double)
		}
		if s.samples != uint64(len(want)) || s.periods != 10*s.samples {
			t.Errorf("got %d samples with the sum %d, want %d", s.samples, s.periods, len(want))
		}
	}
}

// Lost samples count as taken, and the rest of the counter as time in the kernel.
func TestUnsampled(t *testing.T) {
	s := testSource(target.Target{})
	s.samples, s.periods, s.total = 4, 40, 100
	s.lost.Store(2)
	if all, unsampled := s.Unsampled(); all != 100 || unsampled != 40 {
		t.Errorf("got %d of %d, want 40 of 100", unsampled, all)
	}
	s.total = 50 // the last period has not ended
	if _, unsampled := s.Unsampled(); unsampled != 0 {
		t.Errorf("got %d, want none", unsampled)
	}
}

// Rings are read several times before they are full.
func TestInterval(t *testing.T) {
	for _, test := range []struct {
		options Options
		ring    int
	}{
		{Options{Frequency: 49}, usualRing}, {Options{Frequency: 999}, usualRing}, {Options{Frequency: 4999}, smallestRing},
		{Options{Period: 1e6, Spec: perfevent.Spec{Type: 1}}, usualRing},
	} {
		s := testSource(target.Target{})
		s.options.Frequency, s.options.Period, s.options.Spec = test.options.Frequency, test.options.Period, test.options.Spec
		s.events.smallest = test.ring
		rate := test.options.Frequency
		if rate == 0 {
			rate = 1000
		}
		d := s.interval()
		if bytes := d.Seconds() * float64(rate) * (stackCopy + 1<<10); bytes > float64(test.ring)/2 && d > 1e6 || d < 1e6 || d > readAtLeast {
			t.Errorf("%+v: got %v, in which %.0f bytes of %d are written", test.options, d, bytes, test.ring)
		}
	}
}
