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
	a, p := newBreaker(), NewBudget()
	a.blocked = func(int) bool { return true } // in place of a system call
	release := make(chan struct{})
	const silent = 500
	late := make(chan int, silent)
	// answers counts the answers, and the requests without one.
	answers := func() (answers, none int) {
		for i := range 2 * silent {
			got, err := ask(a, p, Backend{Device: uint64(i)}, func(*Request) (int, error) {
				if i%2 == 0 {
					<-release
				}
				return i, nil
			}, func(got int, err error) {
				if got != i || err != nil {
					t.Errorf("request %d: got late answer %d, %v; want %d", i, got, err, i)
				}
				late <- got
			})
			switch {
			case i%2 == 0 && errors.Is(err, ErrNoAnswer):
				none++
			case i%2 == 1 && got == i && err == nil:
				answers++
			default:
				t.Errorf("request %d: got %d, %v", i, got, err)
			}
		}
		return answers, none
	}
	start := time.Now()
	if got, none := answers(); got != silent || none != silent {
		t.Errorf("got %d answers and %d without one, want %d each", got, none, silent)
	}
	if limit := maxBudget + silent*minWait + time.Since(start)/budgetShare; time.Since(start) > limit {
		t.Errorf("waited for %v, want at most %v", time.Since(start), limit)
	}
	// File systems that hang are not asked again.
	start = time.Now()
	answers()
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

	// A budget recovers with time.
	time.Sleep(maxBudget * budgetShare)
	if got := p.limit(time.Hour); got != maxBudget {
		t.Errorf("got a limit of %v, want %v", got, maxBudget)
	}
	// Without any, a request may still take the time in which a local file system answers.
	p.spend(time.Hour)
	time.Sleep(minWait * budgetShare / 2)
	if got := p.limit(time.Hour); got != minWait {
		t.Errorf("got a limit of %v, want %v", got, minWait)
	}
	if got := (*Budget)(nil).limit(time.Minute); got != time.Minute {
		t.Errorf("without a budget: got a limit of %v", got)
	}
}

// A question that only waits for a CPU is answered, even if no budget is left.
func TestBudgetBusy(t *testing.T) {
	p := NewBudget()
	p.spend(maxBudget)
	got, err := ask(newBreaker(), p, Backend{Path: "busy"}, func(*Request) (int, error) {
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
	if _, err = ask(newBreaker(), p, Backend{Path: "blocked"}, func(*Request) (int, error) {
		return unix.Read(int(r.Fd()), make([]byte, 1))
	}, func(_ int, err error) { late <- err }); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v, want %v", err, ErrNoAnswer)
	}
	if err := errors.Join(w.Close(), testenv.Receive(t, late, "no late answer"), r.Close()); err != nil {
		t.Error(err)
	}
}
