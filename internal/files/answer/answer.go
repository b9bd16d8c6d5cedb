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

// maxOpen is how many questions may wait for their answers before no more are
// asked: each keeps a thread, of which Go's runtime allows 10,000. Nobody who answers
// should ever suffer from it, as there is one question for each who does not, or a few
// that were asked at the same time.
const maxOpen = 1024

// errTooMany is what follows the first maxOpen questions.
var errTooMany = fmt.Errorf("%d questions to file systems have no answer, and no more are asked: %w", maxOpen, ErrNone)

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
	return ask(everywhere, nil, who, question, late)
}

// AskPatiently is [Ask] for a loop that must not stop: it waits no longer than p
// allows. A nil p allows what Ask does.
func AskPatiently[T any](p *Patience, who Place, question func(*Visit) (T, error), late func(T, error)) (T, error) {
	return ask(everywhere, p, who, question, late)
}

func ask[T any](a *asker, p *Patience, who Place, question func(*Visit) (T, error), late func(T, error)) (got T, err error) {
	q := Question[T]{
		Who: who,
		Ask: question,
		Answered: func(value T, e error) {
			got, err = value, e
		},
		Late: late,
	}
	askEach(a, p, []Question[T]{q})
	return got, err
}

// Question is one of several that [AskEach] asks.
type Question[T any] struct {
	// Who is asked first.
	Who Place
	// Ask asks, in another goroutine.
	Ask func(*Visit) (T, error)
	// Answered is called with the answer, or with [ErrNone] if there is none in time.
	// Late is called with an answer that comes after that, in another goroutine.
	Answered, Late func(T, error)
}

// AskEach asks one question after the other, and goes on to the next if one has no
// answer in the time that p allows. While all are answered it starts only one goroutine,
// to be fast enough for the files of programs that run for a moment.
func AskEach[T any](p *Patience, questions []Question[T]) { askEach(everywhere, p, questions) }

func askEach[T any](a *asker, p *Patience, questions []Question[T]) {
	for len(questions) > 0 {
		r := &round[T]{asker: a, questions: questions, answered: make(chan struct{}, 1)}
		go r.ask()
		questions = questions[r.await(p):]
	}
}

// round asks questions until one has no answer in time.
type round[T any] struct {
	asker     *asker
	questions []Question[T]
	answered  chan struct{} // sent to when there are answers

	mu      sync.Mutex
	answers []reply[T]
	visit   *Visit // of the question that is open, nil if there is none
	since   time.Time
	givenUp bool
}

type reply[T any] struct {
	value T
	err   error
}

// ask asks the questions in turn.
func (r *round[T]) ask() {
	for _, q := range r.questions {
		v, err := r.asker.visit(q.Who)
		var got reply[T]
		if err != nil {
			got.err = err
		} else {
			r.mu.Lock()
			r.visit, r.since = v, time.Now()
			r.mu.Unlock()
			got.value, got.err = q.Ask(v)
		}
		r.mu.Lock()
		r.visit = nil
		if r.givenUp {
			r.mu.Unlock()
			v.end()
			q.Late(got.value, got.err)
			return
		}
		r.answers = append(r.answers, got)
		done := len(r.answers) == len(r.questions)
		r.mu.Unlock()
		// One that waits is woken for the last answer alone.
		if done {
			r.answered <- struct{}{}
		}
	}
}

// await hands the answers over, waits for each of them as long as p allows, and
// returns how many questions are done with.
func (r *round[T]) await(p *Patience) int {
	handed := 0
	for limit := p.limit(r.asker.within); ; {
		since := time.Now()
		timer := time.NewTimer(limit)
		select {
		case <-r.answered:
		case <-timer.C:
		}
		timer.Stop()
		p.spend(time.Since(since))
		limit = p.limit(r.asker.within)

		r.mu.Lock()
		answers := r.answers[handed:]
		if r.visit != nil {
			// It may have begun just now.
			asked := time.Since(r.since)
			if r.givenUp = asked >= limit; r.givenUp {
				r.visit.giveUp()
			}
			limit -= asked
		}
		givenUp := r.givenUp
		r.mu.Unlock()

		for _, got := range answers {
			r.questions[handed].Answered(got.value, got.err)
			handed++
		}
		if givenUp {
			var none T
			r.questions[handed].Answered(none, ErrNone)
			handed++
		}
		if givenUp || handed == len(r.questions) {
			return handed
		}
	}
}

// visit begins a question to who, unless who does not answer, or too many others do
// not.
func (a *asker) visit(who Place) (*Visit, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.open[who] > 0:
		return nil, ErrNone
	case a.all >= maxOpen:
		return nil, errTooMany
	}
	return &Visit{asker: a, who: who, at: who}, nil
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
