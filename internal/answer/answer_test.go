package answer

import (
	"errors"
	"testing"
	"time"
)

// Who asks a file system that does not answer waits once, and gets the answer
// when there is one.
func TestAsk(t *testing.T) {
	a := newAsker()
	a.within = time.Millisecond
	stuck := Place{Near: "stuck"}
	release, late := make(chan struct{}), make(chan string, 1)
	question := func() (string, error) {
		<-release
		return "late", nil
	}
	if got, err := ask(a, stuck, question, func(s string, _ error) { late <- s }); got != "" || !errors.Is(err, ErrNone) {
		t.Errorf("got %q, %v", got, err)
	}
	unasked := func() (string, error) {
		t.Error("a file system that does not answer was asked again")
		return "", nil
	}
	if _, err := ask(a, stuck, unasked, nil); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	now := func() (string, error) { return "now", nil }
	a.within = time.Hour
	if got, err := ask(a, Place{Near: "another"}, now, nil); got != "now" || err != nil {
		t.Errorf("another: got %q, %v", got, err)
	}
	close(release)
	if got := <-late; got != "late" {
		t.Errorf("got %q late", got)
	}
	if got, err := ask(a, stuck, now, nil); got != "now" || err != nil {
		t.Errorf("after it answered: got %q, %v", got, err)
	}
}

// However many do not answer, the threads that wait for them are few.
func TestAskMany(t *testing.T) {
	a := newAsker()
	a.within = time.Millisecond
	release, late := make(chan struct{}), make(chan error)
	asked := 0
	for who := range 2 * mostOpen {
		_, err := ask(a, Place{Device: uint64(who)}, func() (int, error) {
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
	if asked != mostOpen {
		t.Errorf("%d were asked, want %d", asked, mostOpen)
	}
	close(release)
	for range asked {
		if err := <-late; err != nil {
			t.Error(err)
		}
	}
	a.within = time.Hour
	if got, err := ask(a, Place{}, func() (int, error) { return 1, nil }, nil); got != 1 || err != nil {
		t.Errorf("after they answered: got %d, %v", got, err)
	}
}
