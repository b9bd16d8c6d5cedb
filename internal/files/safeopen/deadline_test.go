package safeopen

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fulgur/internal/testenv"
)

// The first request to a file system that hangs waits for the time limit, and its answer
// is delivered when it arrives.
func TestAsk(t *testing.T) {
	a := newBreaker()
	a.timeout = time.Millisecond
	stuck := Backend{Path: "stuck"}
	release, late := make(chan struct{}), make(chan string, 1)
	request := func(*Request) (string, error) {
		<-release
		return "late", nil
	}
	if got, err := ask(a, nil, stuck, request, func(s string, _ error) { late <- s }); got != "" || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %q, %v; want ErrNoAnswer", got, err)
	}
	unasked := func(*Request) (string, error) {
		t.Error("a file system that hangs was asked again")
		return "", nil
	}
	if _, err := ask(a, nil, stuck, unasked, nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got error %v, want %v", err, ErrNoAnswer)
	}
	now := func(*Request) (string, error) { return "now", nil }
	a.timeout = time.Hour
	if got, err := ask(a, nil, Backend{Path: "another"}, now, nil); got != "now" || err != nil {
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

// If a request hangs in one file system on its way, only that one is not asked again.
func TestRequest(t *testing.T) { synctest.Test(t, testRequest) }

func testRequest(t *testing.T) {
	a := newBreaker()
	stuck, release, late := Backend{Device: 1}, make(chan struct{}), make(chan error)
	follow := func(r *Request) (string, error) {
		if err := r.Enter(stuck); err != nil {
			return "", err
		}
		<-release
		return "", r.Enter(Backend{Device: 2})
	}
	if _, err := ask(a, nil, Backend{Path: "a path"}, follow, func(_ string, err error) { late <- err }); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got error %v, want ErrNoAnswer", err)
	}
	for _, near := range []string{"a path", "another path"} {
		if _, err := ask(a, nil, Backend{Path: near}, follow, nil); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: got error %v, want ErrNoAnswer", near, err)
		}
		beside := func(r *Request) (string, error) { return "now", r.Enter(Backend{Device: 2}) }
		if got, err := ask(a, nil, Backend{Path: near}, beside, nil); got != "now" || err != nil {
			t.Errorf("%s, other file system: got %q, %v; want now", near, got, err)
		}
	}
	close(release)
	if err := <-late; !errors.Is(err, ErrNoAnswer) {
		t.Errorf("an abandoned request continues: got error %v, want ErrNoAnswer", err)
	}
	if _, err := ask(a, nil, Backend{Path: "a path"}, follow, nil); err != nil {
		t.Errorf("after the answer: got error %v", err)
	}

	// A file system that the request has left is not blamed.
	back := make(chan struct{})
	defer close(back)
	left := func(r *Request) (string, error) {
		if err := r.Enter(stuck); err != nil {
			return "", err
		}
		r.Leave()
		<-back
		return "", nil
	}
	if _, err := ask(a, nil, Backend{Path: "a path"}, left, func(string, error) {}); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got error %v, want ErrNoAnswer", err)
	}
	if _, err := ask(a, nil, Backend{Path: "another path"}, follow, nil); err != nil {
		t.Errorf("the file system that was left: got error %v", err)
	}
	if _, err := ask(a, nil, Backend{Path: "a path"}, follow, nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("the path itself: got error %v, want ErrNoAnswer", err)
	}
}

// The number of threads that wait is limited, for any number of hanging file systems.
func TestAskMany(t *testing.T) {
	testenv.AnyKernel(t)
	a := newBreaker()
	a.timeout = time.Microsecond
	release, late := make(chan struct{}), make(chan error)
	asked := 0
	for device := range 2 * maxAbandoned {
		_, err := ask(a, nil, Backend{Device: uint64(device)}, func(*Request) (int, error) {
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
	if asked != maxAbandoned {
		t.Errorf("got %d requests, want %d", asked, maxAbandoned)
	}
	close(release)
	for range asked {
		if err := testenv.Receive(t, late, "a late answer is missing"); err != nil {
			t.Error(err)
		}
	}
	a.timeout = time.Hour
	if got, err := ask(a, nil, Backend{}, func(*Request) (int, error) { return 1, nil }, nil); got != 1 || err != nil {
		t.Errorf("after the answers: got %d, %v; want 1", got, err)
	}
}
