package answer

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// Who asks a file system that does not answer waits once, and gets the answer
// when there is one.
func TestAsk(t *testing.T) {
	a := New[string]()
	a.within = time.Millisecond
	const stuck = "stuck"
	release, late := make(chan struct{}), make(chan string, 1)
	question := func() (string, error) {
		<-release
		return "late", nil
	}
	if got, err := Ask(a, stuck, question, func(s string, _ error) { late <- s }); got != "" || !errors.Is(err, ErrNone) {
		t.Errorf("got %q, %v", got, err)
	}
	unasked := func() (string, error) {
		t.Error("a file system that does not answer was asked again")
		return "", nil
	}
	if _, err := Ask(a, stuck, unasked, nil); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	now := func() (string, error) { return "now", nil }
	a.within = time.Hour
	if got, err := Ask(a, "another", now, nil); got != "now" || err != nil {
		t.Errorf("another: got %q, %v", got, err)
	}
	close(release)
	if got := <-late; got != "late" {
		t.Errorf("got %q late", got)
	}
	if got, err := Ask(a, stuck, now, nil); got != "now" || err != nil {
		t.Errorf("after it answered: got %q, %v", got, err)
	}
}

// closer is a file that is closed when it is released, and like others once.
type closer struct {
	release, closed chan struct{}
	once            sync.Once
}

func newCloser() *closer { return &closer{release: make(chan struct{}), closed: make(chan struct{})} }

func (c *closer) Close() error {
	<-c.release
	c.once.Do(func() { close(c.closed) })
	return nil
}

// What does not answer is closed when it does, and is not waited for.
func TestClose(t *testing.T) {
	a := New[string]()
	a.within = time.Millisecond
	asked, unasked := newCloser(), newCloser()
	close(unasked.release)
	for _, c := range []*closer{asked, unasked} {
		if err := Close(a, "stuck", c); err != nil {
			t.Error(err)
		}
	}
	<-unasked.closed
	close(asked.release)
	<-asked.closed
}

// However many do not answer, the threads that wait for them are few.
func TestAskMany(t *testing.T) {
	a := New[int]()
	a.within = time.Millisecond
	release, late := make(chan struct{}), make(chan error)
	asked := 0
	for who := range 2 * mostOpen {
		_, err := Ask(a, who, func() (int, error) {
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
	if got, err := Ask(a, 0, func() (int, error) { return 1, nil }, nil); got != 1 || err != nil {
		t.Errorf("after they answered: got %d, %v", got, err)
	}
}
