package safeopen

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fulgur/internal/testenv"
)

// The first question to a file system that hangs waits for the time limit, and its answer
// is delivered when it arrives.
func TestAsk(t *testing.T) {
	a := newAsker()
	a.within = time.Millisecond
	stuck := Place{Near: "stuck"}
	release, late := make(chan struct{}), make(chan string, 1)
	question := func(*Visit) (string, error) {
		<-release
		return "late", nil
	}
	if got, err := ask(a, nil, stuck, question, func(s string, _ error) { late <- s }); got != "" || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %q, %v; want ErrNoAnswer", got, err)
	}
	unasked := func(*Visit) (string, error) {
		t.Error("a file system that hangs was asked again")
		return "", nil
	}
	if _, err := ask(a, nil, stuck, unasked, nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got error %v, want %v", err, ErrNoAnswer)
	}
	now := func(*Visit) (string, error) { return "now", nil }
	a.within = time.Hour
	if got, err := ask(a, nil, Place{Near: "another"}, now, nil); got != "now" || err != nil {
		t.Errorf("other file system: got %q, %v; want now", got, err)
	}
	close(release)
	if got := testenv.Receive(t, late, "no late answer"); got != "late" {
		t.Errorf("got late answer %q, want late", got)
	}
	if got, err := ask(a, nil, stuck, now, nil); got != "now" || err != nil {
		t.Errorf("after the answer: got %q, %v; want now", got, err)
	}
}

// If a visit hangs in one file system on its way, only that one is not asked again.
func TestVisit(t *testing.T) { synctest.Test(t, testVisit) }

func testVisit(t *testing.T) {
	a := newAsker()
	stuck, release, late := Place{Device: 1}, make(chan struct{}), make(chan error)
	follow := func(v *Visit) (string, error) {
		if err := v.Reach(stuck); err != nil {
			return "", err
		}
		<-release
		return "", v.Reach(Place{Device: 2})
	}
	if _, err := ask(a, nil, Place{Near: "a path"}, follow, func(_ string, err error) { late <- err }); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got error %v, want ErrNoAnswer", err)
	}
	for _, near := range []string{"a path", "another path"} {
		if _, err := ask(a, nil, Place{Near: near}, follow, nil); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: got error %v, want ErrNoAnswer", near, err)
		}
		beside := func(v *Visit) (string, error) { return "now", v.Reach(Place{Device: 2}) }
		if got, err := ask(a, nil, Place{Near: near}, beside, nil); got != "now" || err != nil {
			t.Errorf("%s, other file system: got %q, %v; want now", near, got, err)
		}
	}
	close(release)
	if err := <-late; !errors.Is(err, ErrNoAnswer) {
		t.Errorf("an abandoned question continues: got error %v, want ErrNoAnswer", err)
	}
	if _, err := ask(a, nil, Place{Near: "a path"}, follow, nil); err != nil {
		t.Errorf("after the answer: got error %v", err)
	}

	// A file system that the visit has left is not blamed.
	back := make(chan struct{})
	defer close(back)
	left := func(v *Visit) (string, error) {
		if err := v.Reach(stuck); err != nil {
			return "", err
		}
		v.Leave()
		<-back
		return "", nil
	}
	if _, err := ask(a, nil, Place{Near: "a path"}, left, func(string, error) {}); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got error %v, want ErrNoAnswer", err)
	}
	if _, err := ask(a, nil, Place{Near: "another path"}, follow, nil); err != nil {
		t.Errorf("the file system that was left: got error %v", err)
	}
	if _, err := ask(a, nil, Place{Near: "a path"}, follow, nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("the path itself: got error %v, want ErrNoAnswer", err)
	}
}

// The number of threads that wait is limited, for any number of hanging file systems.
func TestAskMany(t *testing.T) {
	testenv.AnyKernel(t)
	a := newAsker()
	a.within = time.Microsecond
	release, late := make(chan struct{}), make(chan error)
	asked := 0
	for device := range 2 * maxOpen {
		_, err := ask(a, nil, Place{Device: uint64(device)}, func(*Visit) (int, error) {
			<-release
			return 0, nil
		}, func(_ int, err error) { late <- err })
		if !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("got error %v, want ErrNoAnswer", err)
		}
		if !errors.Is(err, errTooMany) {
			asked++
		}
	}
	if asked != maxOpen {
		t.Errorf("got %d questions, want %d", asked, maxOpen)
	}
	close(release)
	for range asked {
		if err := testenv.Receive(t, late, "a late answer is missing"); err != nil {
			t.Error(err)
		}
	}
	a.within = time.Hour
	if got, err := ask(a, nil, Place{}, func(*Visit) (int, error) { return 1, nil }, nil); got != 1 || err != nil {
		t.Errorf("after the answers: got %d, %v; want 1", got, err)
	}
}
