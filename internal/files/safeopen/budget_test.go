package safeopen

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// A loop continues although many file systems hang, and gets the answers of the others.
func TestBudget(t *testing.T) { synctest.Test(t, testBudget) }

func testBudget(t *testing.T) {
	a, p := newAsker(), NewBudget()
	a.blocked = func(int) bool { return true } // in place of a system call
	release := make(chan struct{})
	const silent = 500
	var questions []Question[int]
	answers, none, late := 0, 0, make(chan int, silent)
	for i := range 2 * silent {
		questions = append(questions, Question[int]{
			Who: Place{Device: uint64(i)},
			Ask: func(*Visit) (int, error) {
				if i%2 == 0 {
					<-release
				}
				return i, nil
			},
			Answered: func(got int, err error) {
				switch {
				case i%2 == 0 && errors.Is(err, ErrNoAnswer):
					none++
				case i%2 == 1 && got == i && err == nil:
					answers++
				default:
					t.Errorf("question %d: got %d, %v", i, got, err)
				}
			},
			Late: func(got int, err error) {
				if got != i || err != nil {
					t.Errorf("question %d: got late answer %d, %v; want %d", i, got, err, i)
				}
				late <- got
			},
		})
	}
	start := time.Now()
	askEach(a, p, questions)
	if answers != silent || none != silent {
		t.Errorf("got %d answers and %d without one, want %d each", answers, none, silent)
	}
	if limit := maxBudget + silent*minWait + time.Since(start)/budgetShare; time.Since(start) > limit {
		t.Errorf("waited for %v, want at most %v", time.Since(start), limit)
	}
	// File systems that hang are not asked again.
	start = time.Now()
	for i := range questions {
		questions[i].Answered = func(_ int, err error) {
			if i%2 == 0 && !errors.Is(err, ErrNoAnswer) {
				t.Errorf("question %d: got error %v, want ErrNoAnswer", i, err)
			}
		}
	}
	askEach(a, p, questions)
	if time.Since(start) > 0 {
		t.Errorf("waited again for %v", time.Since(start))
	}
	close(release)
	for range silent {
		<-late
	}
	synctest.Wait()
	if a.all > 0 || len(a.open) > 0 {
		t.Errorf("got %d open questions, want 0: %v", a.all, a.open)
	}

	// Budget recovers with time.
	time.Sleep(maxBudget * budgetShare)
	if got := p.rest(time.Hour, 0); got != maxBudget {
		t.Errorf("got a limit of %v, want %v", got, maxBudget)
	}
	// A little recovery does not prolong a question, or short waits would never end.
	p.spend(time.Hour)
	time.Sleep(minWait * budgetShare / 2)
	if got := p.rest(time.Hour, minWait); got > 0 {
		t.Errorf("got a rest of %v after %v, want none", got, minWait)
	}
	if got := (*Budget)(nil).rest(time.Hour, time.Minute); got != 59*time.Minute {
		t.Errorf("without Budget: got a limit of %v", got)
	}
}

// A slow loop proceeds while earlier answers are delivered.
func TestAskEachSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		a.within = time.Second
		var got []int
		var questions []Question[int]
		for i := range 10 {
			questions = append(questions, Question[int]{
				Who: Place{Device: uint64(i)},
				Ask: func(*Visit) (int, error) {
					time.Sleep(300 * time.Millisecond)
					return i, nil
				},
				Answered: func(answer int, err error) {
					if err != nil {
						t.Errorf("question %d: %v", i, err)
					}
					got = append(got, answer)
				},
			})
		}
		askEach(a, nil, questions)
		for i, answer := range got {
			if answer != i {
				t.Errorf("got answers %v, want them in order", got)
				break
			}
		}
		if len(got) != len(questions) {
			t.Errorf("got %d answers, want %d", len(got), len(questions))
		}
	})
}

// A question that only waits for a CPU is answered, even if no budget is left.
func TestBudgetBusy(t *testing.T) {
	p := NewBudget()
	p.spend(maxBudget)
	got, err := ask(newAsker(), p, Place{Near: "busy"}, func(*Visit) (int, error) {
		for begin := time.Now(); time.Since(begin) < 20*minWait; {
		}
		return 1, nil
	}, func(int, error) {})
	if got != 1 || err != nil {
		t.Errorf("got %d, %v, want 1", got, err)
	}
	// One that is blocked is not.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan error)
	if _, err = ask(newAsker(), p, Place{Near: "blocked"}, func(*Visit) (int, error) {
		return unix.Read(int(r.Fd()), make([]byte, 1))
	}, func(_ int, err error) { late <- err }); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v, want %v", err, ErrNoAnswer)
	}
	if err := errors.Join(w.Close(), testenv.Receive(t, late, "no late answer"), r.Close()); err != nil {
		t.Error(err)
	}
}
