package process

import (
	"errors"
	"testing"
	"time"
)

// Who asks a file system that does not answer waits once, and gets the answer
// when there is one.
func TestAnswers(t *testing.T) {
	a := newAnswers()
	a.within = time.Millisecond
	stuck, disk := volume{min: 40}, volume{maj: 8}
	release, late := make(chan struct{}), make(chan string, 1)
	question := func() (string, error) {
		<-release
		return "late", nil
	}
	if got, err := ask(a, stuck, question, func(s string, _ error) { late <- s }); got != "" || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %q, %v", got, err)
	}
	unasked := func() (string, error) {
		t.Error("a file system that does not answer was asked again")
		return "", nil
	}
	if _, err := ask(a, stuck, unasked, nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("error %v", err)
	}
	now := func() (string, error) { return "now", nil }
	a.within = time.Hour
	for _, v := range []volume{disk, {min: 41}, {pid: 1}} {
		if got, err := ask(a, v, now, nil); got != "now" || err != nil {
			t.Errorf("%v: got %q, %v", v, got, err)
		}
	}
	close(release)
	if got := <-late; got != "late" {
		t.Errorf("got %q late", got)
	}
	if got, err := ask(a, stuck, now, nil); got != "now" || err != nil {
		t.Errorf("after it answered: got %q, %v", got, err)
	}
}
