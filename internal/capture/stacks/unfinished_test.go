package stacks

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
)

// answers is a reader of a process that answers after a number of calls.
type answers struct{ calls, after int }

func (a *answers) Places(f runtimes.Frame) ([]runtimes.Place, bool) {
	a.calls++
	if a.calls <= a.after {
		return nil, false
	}
	return []runtimes.Place{{Function: runtimes.Code{Kind: bpf.RuntimeV8, Name: fmt.Sprintf("f%x", f.Address)}, Line: 3}}, true
}

func (*answers) Kept() int { return 0 }

// javascript returns the words of a frame of JavaScript.
func javascript(address uint64) []uint64 {
	return []uint64{1<<bpf.FrameRuntimeShift | uint64(bpf.RuntimeV8)<<bpf.FrameKindShift | address, 1 << 32}
}

// The kernel side sends a stack once. If its process did not answer, later samples with the
// stack get its functions.
func TestStoreUnfinished(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	now := time.Unix(0, 0)
	s.now = func() time.Time { return now }
	r := &answers{after: 2}
	s.Readers = only(r)
	give(t, s, record(1, nil, javascript(0x5000)))
	check := func(calls int, name string, line uint64) {
		t.Helper()
		if got, want := s.shown(t, 1), []shown{{name, line}}; !slices.Equal(got, want) || r.calls != calls {
			t.Errorf("got %+v after %d calls, want %+v after %d", got, r.calls, want, calls)
		}
	}
	check(1, "", 0)
	now = now.Add(retryTime)
	check(2, "", 0)
	check(2, "", 0) // not again at once
	now = now.Add(retryTime)
	check(3, "f5000", 3)
	now = now.Add(retryTime)
	check(3, "f5000", 3)
	if n := len(s.retries); n != 0 {
		t.Errorf("got %d stacks to read again, want 0", n)
	}
}

// The same holds for code that the kernel side does not identify.
func TestStoreUnidentifiedUnfinished(t *testing.T) {
	s := NewStore(mapped(process.KindAnon))
	now := time.Unix(0, 0)
	s.now = func() time.Time { return now }
	r := &answers{after: 1}
	s.Readers = only(r)
	give(t, s, record(1, nil, []uint64{0x1000}))
	for i, want := range []shown{{"", 0x1000}, {"f0", 0}} {
		if got := s.shown(t, 1); !slices.Equal(got, []shown{want}) {
			t.Errorf("attempt %d: got %+v, want %+v", i+1, got, want)
		}
		now = now.Add(retryTime)
	}
	if n := len(s.retries); n != 0 {
		t.Errorf("got %d stacks to read again, want 0", n)
	}
}

// The stacks that are kept to read their functions again are limited in number, and in
// attempts.
func TestStoreUnfinishedLimit(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	now := time.Unix(0, 0)
	s.now = func() time.Time { return now }
	r := &answers{after: 1 << 30}
	s.Readers = only(r)
	for id := range uint64(2 * maxUnfinished) {
		give(t, s, record(id+1, nil, javascript(0x5000)))
	}
	if n := len(s.retries); n != maxUnfinished {
		t.Errorf("got %d stacks to read again, want %d", n, maxUnfinished)
	}
	before := r.calls
	for range 2 * maxRetries {
		now = now.Add(retryTime)
		s.Find(1)
	}
	if n := r.calls - before; n != maxRetries {
		t.Errorf("got %d attempts, want %d", n, maxRetries)
	}
}
