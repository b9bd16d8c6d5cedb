package safeopen

import (
	"bytes"
	"errors"
	"fmt"
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

// within is the time limit of a question.
const within = 2 * time.Second

// pause is the longest part of a wait that counts at once. If the machine stalls, a wait may
// last for seconds in which the question made no progress either, so the rest does not count.
const pause = 50 * time.Millisecond

// maxOpen is the maximum number of unanswered questions. Each occupies a thread, and the
// Go runtime allows 10,000. The limit should never affect file systems that respond: each
// one that does not has a single open question, or a few that were asked at the same
// time.
const maxOpen = 1024

// errTooMany is returned when maxOpen questions are unanswered.
var errTooMany = fmt.Errorf("%d questions to file systems have no answer, and no more are asked: %w", maxOpen, ErrNoAnswer)

// Place identifies what may not respond: a file system by its device number or, if that
// is not known yet, the leading directories of a path.
type Place struct {
	Device uint64 // from stat(2)
	Near   string // leading directories of a path
}

// asker asks questions. A place that did not answer in time is not asked again until it
// has answered. It is safe for concurrent use.
type asker struct {
	within  time.Duration
	blocked func(tid int) bool
	mu      sync.Mutex
	open    map[Place]int // abandoned questions
	all     int           // their total
}

func newAsker() *asker { return &asker{within: within, blocked: blocked, open: map[Place]int{}} }

// everywhere is the process-wide record of places that do not respond.
var everywhere = newAsker()

// Visit is a question in progress, which may move from one file system to the next along
// a path.
type Visit struct {
	asker   *asker
	who     Place // the first place
	at      Place // the current place
	givenUp bool
}

// Reach reports that the question moves on to p. It returns [ErrNoAnswer] if p does not
// respond or the question was abandoned, and then p must not be accessed.
func (v *Visit) Reach(p Place) error {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	if v.givenUp || v.asker.open[p] > 0 {
		return ErrNoAnswer
	}
	v.at = p
	return nil
}

// Leave reports that the question moves back to the place given to [Ask].
func (v *Visit) Leave() {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	if !v.givenUp {
		v.at = v.who
	}
}

// Ask runs question, which starts at who, and returns its result. It returns [ErrNoAnswer] if
// question takes too long; the place reached last is then not asked again until it
// responds. A later result of question goes to late.
func Ask[T any](who Place, question func(*Visit) (T, error), late func(T, error)) (T, error) {
	return ask(everywhere, nil, who, question, late)
}

// AskWithin is like [Ask] for a loop that must not stall: it waits no longer than p
// allows. A nil p waits as long as Ask.
func AskWithin[T any](p *Budget, who Place, question func(*Visit) (T, error), late func(T, error)) (T, error) {
	return ask(everywhere, p, who, question, late)
}

func ask[T any](a *asker, p *Budget, who Place, question func(*Visit) (T, error), late func(T, error)) (got T, err error) {
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

// Question is one of the questions of [AskEach].
type Question[T any] struct {
	// Who is the first place.
	Who Place
	// Ask asks the question, in another goroutine.
	Ask func(*Visit) (T, error)
	// Answered receives the result, or [ErrNoAnswer] if there is none in time. Late receives
	// a result that comes after that, in another goroutine.
	Answered, Late func(T, error)
}

// AskEach asks questions one after the other, and moves on to the next if one is not
// answered within the time that p allows. While all are answered it uses a single
// goroutine, which makes it fast enough for the files of short-lived processes.
func AskEach[T any](p *Budget, questions []Question[T]) { askEach(everywhere, p, questions) }

func askEach[T any](a *asker, p *Budget, questions []Question[T]) {
	for len(questions) > 0 {
		r := &round[T]{asker: a, questions: questions, answered: make(chan struct{}, 1)}
		go r.ask()
		questions = questions[r.await(p):]
	}
}

// round asks questions until one is not answered in time.
type round[T any] struct {
	asker     *asker
	questions []Question[T]
	answered  chan struct{} // signals new answers

	mu      sync.Mutex
	tid     int // of the thread that asks
	answers []outcome[T]
	visit   *Visit // of the open question; nil if there is none
	since   time.Time
	givenUp bool
}

type outcome[T any] struct {
	value T
	err   error
}

// ask asks the questions in order.
func (r *round[T]) ask() {
	runtime.LockOSThread() // await looks at the thread
	defer runtime.UnlockOSThread()
	r.mu.Lock()
	r.tid = unix.Gettid()
	r.mu.Unlock()
	for _, q := range r.questions {
		v, err := r.asker.visit(q.Who)
		var got outcome[T]
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
		// Wake the waiter only for the last answer.
		if done {
			r.answered <- struct{}{}
		}
	}
}

// await delivers the answers, waits for each as long as p allows, and returns the number
// of finished questions.
func (r *round[T]) await(p *Budget) int {
	handed := 0
	var current *Visit       // the open question after the last wait,
	var waited time.Duration // and the wait for it
	for {
		last := r.wait(p.rest(r.asker.within, waited))
		p.spend(last)

		r.mu.Lock()
		answers := r.answers[handed:]
		switch r.visit {
		case nil:
			waited = 0
		case current:
			waited += last
		default: // it began during the wait
			waited = min(last, time.Since(r.since))
		}
		current = r.visit
		if current != nil && p.rest(r.asker.within, waited) <= 0 &&
			(waited >= r.asker.within || r.asker.blocked(r.tid)) {
			r.givenUp = true
			current.giveUp()
		}
		givenUp := r.givenUp
		r.mu.Unlock()

		for _, got := range answers {
			r.questions[handed].Answered(got.value, got.err)
			handed++
		}
		if givenUp {
			var none T
			r.questions[handed].Answered(none, ErrNoAnswer)
			handed++
		}
		if givenUp || handed == len(r.questions) {
			return handed
		}
	}
}

// wait waits for answers, at most for a pause, and returns the time that counts: none while a helper starts.
func (r *round[T]) wait(most time.Duration) time.Duration {
	begin := time.Now()
	most = max(min(minWait, r.asker.within), min(most, pause))
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.answered:
	case <-timer.C:
	}
	if starting.Load() > 0 {
		return 0
	}
	return min(time.Since(begin), most)
}

// blocked reports whether a thread of this process is blocked in a system call or a page fault.
// A thread that waits for a CPU is not, nor is one that waits for Go's scheduler, in futex(2).
func blocked(tid int) bool {
	text, err := os.ReadFile(procfs.Path(os.Getpid(), "task", strconv.Itoa(tid), "syscall"))
	call, _, _ := bytes.Cut(text, []byte(" "))
	return err != nil || string(call) != "running\n" && string(call) != strconv.Itoa(unix.SYS_FUTEX)
}

// visit begins a question to who, unless who does not respond or too many others do not.
func (a *asker) visit(who Place) (*Visit, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.open[who] > 0:
		return nil, ErrNoAnswer
	case a.all >= maxOpen:
		return nil, errTooMany
	}
	return &Visit{asker: a, who: who, at: who}, nil
}

// giveUp counts the question as abandoned.
func (v *Visit) giveUp() {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	v.givenUp = true
	v.asker.all++
	v.asker.open[v.at]++
}

// end uncounts an abandoned question, which was answered.
func (v *Visit) end() {
	v.asker.mu.Lock()
	defer v.asker.mu.Unlock()
	v.asker.all--
	if v.asker.open[v.at]--; v.asker.open[v.at] == 0 {
		delete(v.asker.open, v.at)
	}
}
