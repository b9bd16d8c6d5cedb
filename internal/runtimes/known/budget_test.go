package known

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/files/budget"
	"fulgur/internal/runtimes"
)

// slowMemory responds after some time.
type slowMemory time.Duration

func (m slowMemory) Read([]byte, uint64) error {
	time.Sleep(time.Duration(m))
	return nil
}

// Readers of many processes share the time for reading, which is replenished over time.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 10 * time.Millisecond
		shared := budget.New(maxReading, readingShare)
		begin, reads := time.Now(), 0
		for range 1000 {
			m := &limitedMemory{slowMemory(took), shared}
			if err := m.Read(nil, 0); err == nil {
				reads++
			} else if !errors.Is(err, errBudget) {
				t.Fatal(err)
			}
		}
		if most := maxReading + time.Since(begin)/readingShare + took; time.Duration(reads)*took > most || reads == 0 {
			t.Errorf("got %d reads of %v, want at most %v in all", reads, took, most)
		}
		time.Sleep(readingShare * maxReading)
		if err := (&limitedMemory{slowMemory(took), shared}).Read(nil, 0); err != nil {
			t.Errorf("got %v after a pause", err)
		}
	})
}

// keeper is a reader that caches some bytes.
type keeper struct {
	runtimes.Reader
	bytes int
}

func (k *keeper) Kept() int { return k.bytes }

// The caches of all readers have a common limit. Above it, the largest one is emptied.
func TestTrackerKept(t *testing.T) {
	tracker := NewTracker(nil)
	opened := map[int]int{}
	for pid := range 8 {
		open := func() runtimes.Reader {
			opened[pid]++
			return &keeper{}
		}
		tracker.readers[readerOf{pid, bpf.RuntimeV8}] = reader{Reader: open(), open: open}
	}
	for pid := range 8 {
		tracker.Reader(pid, bpf.RuntimeV8, 0).(*keeper).bytes = maxKept / (8 - pid)
		if r := tracker.Reader(pid, bpf.RuntimeV8, 0); r == nil {
			t.Fatal("got no reader")
		}
		if sum := total(tracker); sum > maxKept {
			t.Errorf("readers keep %d bytes, want at most %d", sum, maxKept)
		}
	}
	if opened[0] != 1 || opened[4] != 1 || opened[7] != 2 {
		t.Errorf("got readers %v by process, want only the largest replaced", opened)
	}
	for pid := range 8 {
		tracker.Forget(pid)
	}
	if tracker.kept != 0 {
		t.Errorf("got %d bytes without readers, want 0", tracker.kept)
	}
}

func total(t *Tracker) (sum int) {
	for _, r := range t.readers {
		sum += r.Kept()
	}
	return sum
}

// A stack that was read before the process executed another program has no reader.
func TestTrackerReader(t *testing.T) {
	tracker := NewTracker(nil)
	tracker.readers[readerOf{5, bpf.RuntimeV8}] = reader{Reader: &keeper{}, since: 100}
	for time, want := range map[uint64]bool{99: false, 100: true, 200: true} {
		if got := tracker.Reader(5, bpf.RuntimeV8, time) != nil; got != want {
			t.Errorf("at %d: got a reader: %v, want %v", time, got, want)
		}
	}
	if tracker.Reader(6, bpf.RuntimeV8, 200) != nil || tracker.Reader(5, bpf.RuntimeHotSpot, 200) != nil {
		t.Error("got a reader of an unknown process")
	}
}
