// Package answer asks questions of those who may never answer: a file system of a
// network whose server is gone, or of FUSE whose daemon is stuck, holds whoever
// opens or reads a file of it.
package answer

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrNone says that a file's file system did not answer.
var ErrNone = errors.New("its file system does not answer")

// within is how long an answer may take.
const within = 2 * time.Second

// mostOpen is how many questions may wait for their answers before no more are
// asked: each keeps a thread.
const mostOpen = 32

// errTooMany is what follows the first mostOpen questions.
var errTooMany = fmt.Errorf("%d file systems do not answer, and others are not asked: %w", mostOpen, ErrNone)

// Asker asks. Who did not answer in time is not asked again until it does answer.
// K names who is asked. The methods may be called from several goroutines.
type Asker[K comparable] struct {
	within time.Duration
	mu     sync.Mutex
	open   map[K]int // questions that were given up
	all    int       // their number
}

// New returns an asker that knows of no one who does not answer.
func New[K comparable]() *Asker[K] { return &Asker[K]{within: within, open: map[K]int{}} }

// Ask returns what question, which is asked of who, returns; or [ErrNone] if that
// takes too long. What question returns after that is handed to late.
func Ask[K comparable, T any](a *Asker[K], who K, question func() (T, error), late func(T, error)) (T, error) {
	var none T
	a.mu.Lock()
	silent, tooMany := a.open[who] > 0, a.all >= mostOpen
	a.mu.Unlock()
	switch {
	case silent:
		return none, ErrNone
	case tooMany:
		return none, errTooMany
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		value, err := question()
		answered <- answer{value, err}
	}()
	timer := time.NewTimer(a.within)
	defer timer.Stop()
	select {
	case got := <-answered:
		return got.value, got.err
	case <-timer.C:
	}
	a.count(who, 1)
	go func() {
		got := <-answered
		a.count(who, -1)
		late(got.value, got.err)
	}()
	return none, ErrNone
}

// Close closes what was only read from and lies with who, or has it closed once who
// answers: FUSE asks its daemon first. Nobody waits for that, and there is nothing to
// lose.
func Close[K comparable](a *Asker[K], who K, file io.Closer) error {
	_, err := Ask(a, who, func() (struct{}, error) { return struct{}{}, file.Close() }, func(struct{}, error) {})
	if errors.Is(err, ErrNone) {
		go func() { _ = file.Close() }() // if it was not asked; a second time does nothing
		return nil
	}
	return err
}

// count adds questions to those that were given up.
func (a *Asker[K]) count(who K, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all += n
	if a.open[who] += n; a.open[who] == 0 {
		delete(a.open, who)
	}
}
