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
// asked: each keeps a thread, of which Go's runtime allows 10,000. Nobody who answers
// should ever suffer from it, as there is one question for each who does not, or a few
// that were asked at the same time.
const mostOpen = 1024

// errTooMany is what follows the first mostOpen questions.
var errTooMany = fmt.Errorf("%d questions to file systems have no answer, and no more are asked: %w", mostOpen, ErrNone)

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

// Visit is a question on its way: whoever follows a path comes to one file system
// after the other.
type Visit struct {
	asker   *asker
	who     Place // who was asked in the first place
	at      Place // who is asked now
	givenUp bool
}

// Reach says that what comes now is asked of p. If p does not answer, or nobody
// waits for the question any more, it returns [ErrNone], and p is not to be asked.
func (v *Visit) Reach(p Place) error {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	if v.givenUp || v.asker.open[p] > 0 {
		return ErrNone
	}
	v.at = p
	return nil
}

// Leave says that what comes now is not asked of who was reached last, but of
// whom [Ask] was told.
func (v *Visit) Leave() {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	if !v.givenUp {
		v.at = v.who
	}
}

// Ask returns what question, which is asked of who first, returns; or [ErrNone] if
// that takes too long: then who was reached last is not asked any more, until it does
// answer. What question returns after that is handed to late.
func Ask[T any](who Place, question func(*Visit) (T, error), late func(T, error)) (T, error) {
	return ask(everywhere, who, question, late)
}

// AskDirectly returns what question returns, however long that takes: for those who
// keep nobody waiting, whom to ask through another goroutine would take longer.
func AskDirectly[T any](question func(*Visit) (T, error)) (T, error) {
	return question(&Visit{asker: everywhere})
}

func ask[T any](a *asker, who Place, question func(*Visit) (T, error), late func(T, error)) (T, error) {
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
	v := &Visit{asker: a, who: who, at: who}
	go func() {
		value, err := question(v)
		answered <- answer{value, err}
	}()
	timer := time.NewTimer(a.within)
	defer timer.Stop()
	select {
	case got := <-answered:
		return got.value, got.err
	case <-timer.C:
	}
	v.giveUp()
	go func() {
		got := <-answered
		v.end()
		late(got.value, got.err)
	}()
	return none, ErrNone
}

// giveUp counts the question among those that have no answer.
func (v *Visit) giveUp() {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	v.givenUp = true
	v.asker.all++
	v.asker.open[v.at]++
}

// end counts it out again: it was answered.
func (v *Visit) end() {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	v.asker.all--
	if v.asker.open[v.at]--; v.asker.open[v.at] == 0 {
		delete(v.asker.open, v.at)
	}
}
