package process

import (
	"errors"
	"sync"
	"time"
)

// ErrNoAnswer says that a file's file system does not answer, as one of a network
// whose server is gone, or of FUSE whose daemon is stuck.
var ErrNoAnswer = errors.New("its file system does not answer")

// answerWithin is how long a file system may take to answer.
const answerWithin = 2 * time.Second

// volume is what may fail to answer: a file system by its device number or, where
// that is not known yet, what a process sees.
type volume struct {
	maj, min uint32
	pid      int
}

// volume is where the file is.
func (k FileKey) volume() volume { return volume{maj: k.Maj, min: k.Min} }

// onDisk reports whether v is on a disk of this machine, which answers: what has
// none, as a network's file system, has a made-up device with major number 0.
func (v volume) onDisk() bool { return v.pid == 0 && v.maj != 0 }

// answers keeps those who ask file systems from waiting for ever. One that did not
// answer in time is not asked again until it does answer.
type answers struct {
	within time.Duration
	mu     sync.Mutex
	open   map[volume]int // questions that were given up
}

func newAnswers() *answers { return &answers{within: answerWithin, open: map[volume]int{}} }

// ask returns what question returns, or ErrNoAnswer if v takes too long. What
// question returns after that is handed to late.
func ask[T any](a *answers, v volume, question func() (T, error), late func(T, error)) (T, error) {
	var none T
	if v.onDisk() {
		return question()
	}
	a.mu.Lock()
	silent := a.open[v] > 0
	a.mu.Unlock()
	if silent {
		return none, ErrNoAnswer
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
	a.count(v, 1)
	go func() {
		got := <-answered
		a.count(v, -1)
		late(got.value, got.err)
	}()
	return none, ErrNoAnswer
}

// count adds questions to those that were given up.
func (a *answers) count(v volume, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[v] += n; a.open[v] == 0 {
		delete(a.open, v)
	}
}
