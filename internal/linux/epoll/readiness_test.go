package epoll

import (
	"os"
	"testing"
	"time"
)

// forever is longer than any test may take.
const forever = time.Hour

func newSet(t *testing.T) *Set {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func write(t *testing.T, w *os.File) {
	t.Helper()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
}

// A descriptor that is or becomes readable ends each wait until it is read.
func TestReadable(t *testing.T) {
	s := newSet(t)
	r, w := pipe(t)
	fds := []int{int(r.Fd())}
	for range 2 {
		timer := time.AfterFunc(10*time.Millisecond, func() { _, _ = w.WriteString("x") })
		if err := s.Wait(fds, forever); err != nil {
			t.Fatal(err)
		}
		if timer.Stop() {
			t.Fatal("the wait ended with nothing to read")
		}
		if err := s.Wait(fds, forever); err != nil { // not read yet
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTimeout(t *testing.T) {
	s := newSet(t)
	r, _ := pipe(t)
	for _, d := range []time.Duration{-time.Second, 0, 20 * time.Millisecond, 20 * time.Millisecond} {
		start := time.Now()
		if err := s.Wait([]int{int(r.Fd())}, d); err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(start); passed < d {
			t.Errorf("waited %v, want at least %v", passed, d)
		}
	}
}

// An interrupt ends the current wait, or else the next one, and no other.
func TestInterrupt(t *testing.T) {
	s := newSet(t)
	timer := time.AfterFunc(10*time.Millisecond, s.Interrupt)
	if err := s.Wait(nil, forever); err != nil {
		t.Fatal(err)
	}
	if timer.Stop() {
		t.Fatal("the wait ended uninterrupted")
	}
	s.Interrupt()
	if err := s.Wait(nil, forever); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := s.Wait(nil, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if passed := time.Since(start); passed < 20*time.Millisecond {
		t.Errorf("a wait without interrupt ended after %v", passed)
	}
}

// Follow replaces the descriptors, including closed ones and ones whose numbers are
// reused.
func TestFollow(t *testing.T) {
	s := newSet(t)
	r1, _ := pipe(t)
	r2, w2 := pipe(t)
	first, second := int(r1.Fd()), int(r2.Fd())
	if err := s.Wait([]int{first, second}, 0); err != nil {
		t.Fatal(err)
	}
	write(t, w2)
	start := time.Now()
	if err := s.Wait([]int{first}, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if passed := time.Since(start); passed < 20*time.Millisecond {
		t.Errorf("a removed descriptor ended the wait after %v", passed)
	}
	if err := s.Wait([]int{second, first}, forever); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait([]int{first}, 0); err != nil {
		t.Fatal(err)
	}
	if err := r2.Close(); err != nil {
		t.Fatal(err)
	}
	r3, w3 := pipe(t)
	write(t, w3)
	if err := s.Wait([]int{first, int(r3.Fd())}, forever); err != nil {
		t.Fatal(err)
	}
}
