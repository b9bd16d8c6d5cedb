package answer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Who asks a file system that does not answer waits once, and gets the answer
// when there is one.
func TestAsk(t *testing.T) {
	a := newAsker()
	a.within = time.Millisecond
	stuck := Place{Near: "stuck"}
	release, late := make(chan struct{}), make(chan string, 1)
	question := func(*Visit) (string, error) {
		<-release
		return "late", nil
	}
	if got, err := ask(a, nil, stuck, question, func(s string, _ error) { late <- s }); got != "" || !errors.Is(err, ErrNone) {
		t.Errorf("got %q, %v", got, err)
	}
	unasked := func(*Visit) (string, error) {
		t.Error("a file system that does not answer was asked again")
		return "", nil
	}
	if _, err := ask(a, nil, stuck, unasked, nil); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	now := func(*Visit) (string, error) { return "now", nil }
	a.within = time.Hour
	if got, err := ask(a, nil, Place{Near: "another"}, now, nil); got != "now" || err != nil {
		t.Errorf("another: got %q, %v", got, err)
	}
	close(release)
	if got := <-late; got != "late" {
		t.Errorf("got %q late", got)
	}
	if got, err := ask(a, nil, stuck, now, nil); got != "now" || err != nil {
		t.Errorf("after it answered: got %q, %v", got, err)
	}
}

// Who does not answer on the way to somewhere is who is not asked any more.
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
	if _, err := ask(a, nil, Place{Near: "a path"}, follow, func(_ string, err error) { late <- err }); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	for _, who := range []string{"a path", "another path"} {
		if _, err := ask(a, nil, Place{Near: who}, follow, nil); !errors.Is(err, ErrNone) {
			t.Errorf("%s: error %v", who, err)
		}
		beside := func(v *Visit) (string, error) { return "now", v.Reach(Place{Device: 2}) }
		if got, err := ask(a, nil, Place{Near: who}, beside, nil); got != "now" || err != nil {
			t.Errorf("%s, elsewhere: got %q, %v", who, got, err)
		}
	}
	close(release)
	if err := <-late; !errors.Is(err, ErrNone) {
		t.Errorf("what nobody waits for goes on: error %v", err)
	}
	if _, err := ask(a, nil, Place{Near: "a path"}, follow, nil); err != nil {
		t.Errorf("after it answered: error %v", err)
	}

	// Who was left is not to blame.
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
	if _, err := ask(a, nil, Place{Near: "a path"}, left, func(string, error) {}); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	if _, err := ask(a, nil, Place{Near: "another path"}, follow, nil); err != nil {
		t.Errorf("who was left: error %v", err)
	}
	if _, err := ask(a, nil, Place{Near: "a path"}, follow, nil); !errors.Is(err, ErrNone) {
		t.Errorf("the path itself: error %v", err)
	}
}

// However many do not answer, the threads that wait for them are few.
func TestAskMany(t *testing.T) {
	a := newAsker()
	a.within = time.Microsecond
	release, late := make(chan struct{}), make(chan error)
	asked := 0
	for who := range 2 * maxOpen {
		_, err := ask(a, nil, Place{Device: uint64(who)}, func(*Visit) (int, error) {
			<-release
			return 0, nil
		}, func(_ int, err error) { late <- err })
		if !errors.Is(err, ErrNone) {
			t.Fatalf("error %v", err)
		}
		if !errors.Is(err, errTooMany) {
			asked++
		}
	}
	if asked != maxOpen {
		t.Errorf("%d were asked, want %d", asked, maxOpen)
	}
	close(release)
	for range asked {
		if err := <-late; err != nil {
			t.Error(err)
		}
	}
	a.within = time.Hour
	if got, err := ask(a, nil, Place{}, func(*Visit) (int, error) { return 1, nil }, nil); got != 1 || err != nil {
		t.Errorf("after they answered: got %d, %v", got, err)
	}
}
