package safeopen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// ErrNoAnswer means that a file system did not respond in time.
var ErrNoAnswer = errors.New("its file system does not answer")

// timeout is the time limit of a request without a [Budget].
const timeout = 2 * time.Second

// maxPart is the longest part of a wait that counts at once. If the machine stalls, a wait may
// last for seconds in which the request made no progress either, so the rest does not count.
const maxPart = 50 * time.Millisecond

// maxAbandoned is the maximum number of abandoned requests. Each occupies a thread, and the
// Go runtime allows 10,000. The limit should never affect file systems that respond: each
// one that does not has a single abandoned request, or a few that were made at the same
// time.
const maxAbandoned = 1024

var errTooMany = fmt.Errorf("%d requests to file systems have no answer, and no more are made: %w", maxAbandoned, ErrNoAnswer)

// Backend is what answers a request: a file system by its device number or, if that is not known
// yet, the leading directories of a path.
type Backend struct {
	Device uint64 // from stat(2)
	Path   string
}

// breaker is a circuit breaker: a backend that did not answer in time gets no further requests
// until it has answered. It is safe for concurrent use.
type breaker struct {
	timeout time.Duration
	blocked func(tid int) bool
	mu      sync.Mutex
	open    map[Backend]int // abandoned requests
	all     int             // their total
}

func newBreaker() *breaker {
	return &breaker{timeout: timeout, blocked: blocked, open: map[Backend]int{}}
}

// everywhere is the breaker of this process.
var everywhere = newBreaker()

// Request is a request in progress, which may move from one file system to the next along
// a path.
type Request struct {
	breaker *breaker
	first   Backend
	// The mutex of breaker guards the rest.
	current             Backend
	tid                 int // of the thread that makes the request; 0 before it begins
	answered, abandoned bool
}

// Enter reports that the request moves on to b. It returns [ErrNoAnswer] if b does not
// respond or the request was abandoned, and then b must not be accessed.
func (r *Request) Enter(b Backend) error {
	r.breaker.mu.Lock()
	defer r.breaker.mu.Unlock()
	if r.abandoned || r.breaker.open[b] > 0 {
		return ErrNoAnswer
	}
	r.current = b
	return nil
}

// Leave reports that the request moves back to the backend given to [Ask].
func (r *Request) Leave() {
	r.breaker.mu.Lock()
	defer r.breaker.mu.Unlock()
	if !r.abandoned {
		r.current = r.first
	}
}

// Ask makes a request, which begins at first, in a thread of its own. It returns [ErrNoAnswer] if
// that takes longer than the budget allows, or than 2 seconds if it is nil. The backend that
// was entered last then gets no further requests until it answers. If that answer is an
// [io.Closer], it is closed.
func Ask[T any](b *Budget, first Backend, request func(*Request) (T, error)) (T, error) {
	return AskLate(b, first, request, func(got T, err error) {
		if c, ok := any(got).(io.Closer); ok && err == nil {
			_ = c.Close() // nobody waited for it
		}
	})
}

// AskLate is like [Ask], but calls late with an answer that comes too late.
func AskLate[T any](b *Budget, first Backend, request func(*Request) (T, error), late func(T, error)) (T, error) {
	return ask(everywhere, b, first, request, late)
}

func ask[T any](b *breaker, budget *Budget, first Backend, request func(*Request) (T, error), late func(T, error)) (T, error) {
	var none, got T
	r, err := b.request(first)
	if err != nil {
		return none, err
	}
	answered := make(chan struct{})
	go func() {
		runtime.LockOSThread() // wait looks at the thread
		defer runtime.UnlockOSThread()
		r.begin()
		value, failure := request(r)
		if r.end() {
			late(value, failure)
			return
		}
		got, err = value, failure
		close(answered)
	}()
	if !r.wait(budget, answered) {
		return none, ErrNoAnswer
	}
	return got, err
}

// request returns a request to a backend, unless that does not respond or too many others do not.
func (b *breaker) request(first Backend) (*Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open[first] > 0:
		return nil, ErrNoAnswer
	case b.all >= maxAbandoned:
		return nil, errTooMany
	}
	return &Request{breaker: b, first: first, current: first}, nil
}

// begin records the thread that makes the request.
func (r *Request) begin() {
	r.breaker.mu.Lock()
	defer r.breaker.mu.Unlock()
	r.tid = unix.Gettid()
}

// wait waits for the answer as long as the budget allows, and longer while the thread only waits
// for a CPU. It reports false if it abandoned the request.
func (r *Request) wait(budget *Budget, answered <-chan struct{}) bool {
	limit, waited := budget.limit(r.breaker.timeout), time.Duration(0)
	for {
		begin := time.Now()
		part := max(min(limit-waited, maxPart), min(minWait, r.breaker.timeout))
		timer := time.NewTimer(part)
		select {
		case <-answered:
			timer.Stop()
			budget.spend(r.counts(begin, part))
			return true
		case <-timer.C:
		}
		last := r.counts(begin, part)
		budget.spend(last)
		if waited += last; waited >= limit && r.abandon(waited) {
			return false
		}
	}
}

// counts returns how much of a wait counts, at most part: nothing before the thread runs, nor while a
// helper starts.
func (r *Request) counts(begin time.Time, part time.Duration) time.Duration {
	r.breaker.mu.Lock()
	defer r.breaker.mu.Unlock()
	if r.tid == 0 || starting.Load() > 0 {
		return 0
	}
	return min(time.Since(begin), part)
}

// abandon abandons the request, which was waited for, unless it was answered or only waits for a CPU.
func (r *Request) abandon(waited time.Duration) bool {
	b := r.breaker
	if waited < b.timeout && !b.blocked(r.tid) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.answered {
		return false
	}
	r.abandoned = true
	b.all++
	b.open[r.current]++
	return true
}

// end ends the request with an answer. It reports whether the request was abandoned.
func (r *Request) end() (late bool) {
	b := r.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	r.answered = true
	if !r.abandoned {
		return false
	}
	b.all--
	if b.open[r.current]--; b.open[r.current] == 0 {
		delete(b.open, r.current)
	}
	return true
}

// blocked reports whether a thread of this process is blocked in a system call or a page fault.
// A thread that waits for a CPU is not, nor is one that waits for Go's scheduler, in futex(2).
func blocked(tid int) bool {
	text, err := os.ReadFile(procfs.Path(os.Getpid(), "task", strconv.Itoa(tid), "syscall"))
	call, _, _ := bytes.Cut(text, []byte(" "))
	return err != nil || string(call) != "running\n" && string(call) != strconv.Itoa(unix.SYS_FUTEX)
}
