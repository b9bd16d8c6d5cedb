// Package answer asks questions of those who may never answer: a file system of a
// network whose server is gone, or of FUSE whose daemon is stuck, holds whoever
// opens or reads a file of it.
package answer

import (
	"errors"
	"fmt"
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

// Place is what may fail to answer: a file system by its device number or, where
// that is not known yet, the surroundings of a path.
type Place struct {
	Device uint64 // as stat(2) tells it
	Near   string // what the surroundings are called
}

// asker asks. Who did not answer in time is not asked again until it does answer.
// It may be used from several goroutines.
type asker struct {
	within time.Duration
	mu     sync.Mutex
	open   map[Place]int // questions that were given up
	all    int           // their number
}

func newAsker() *asker { return &asker{within: within, open: map[Place]int{}} }

// everywhere remembers, for all of the process, who does not answer.
var everywhere = newAsker()

// Ask returns what question, which is asked of who, returns; or [ErrNone] if that
// takes too long. What question returns after that is handed to late.
func Ask[T any](who Place, question func() (T, error), late func(T, error)) (T, error) {
	return ask(everywhere, who, question, late)
}

func ask[T any](a *asker, who Place, question func() (T, error), late func(T, error)) (T, error) {
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

// count adds questions to those that were given up.
func (a *asker) count(who Place, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all += n
	if a.open[who] += n; a.open[who] == 0 {
		delete(a.open, who)
	}
}
