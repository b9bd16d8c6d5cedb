package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// goWaits is the number of waits of each kind of goroutineWaits.
const goWaits = 10

// goWait is a kind of waits of goroutines: wait begins a wait, and wake ends it.
type goWait struct {
	name, reason string // as in the stack: the function, and Go's reason
	wait, wake   func()
	// profiled is set if Go's block profile has the waits.
	profiled bool
}

// goSleep is the time of waits that end by themselves.
const goSleep = 20 * time.Millisecond

//go:noinline
func goReceives(c chan int) { sink += uint64(<-c) }

//go:noinline
func goSends(c chan int) { c <- 1 }

//go:noinline
func goSelects(c chan int) {
	select {
	case <-c:
	case <-goNever:
	}
}

//go:noinline
func goLocks(mu *sync.Mutex) {
	mu.Lock()
	sink++
	mu.Unlock()
}

//go:noinline
func goReadLocks(mu *sync.RWMutex) {
	mu.RLock()
	sink++
	mu.RUnlock()
}

//go:noinline
func goAwaits(c *sync.Cond) {
	c.L.Lock()
	c.Wait()
	c.L.Unlock()
}

//go:noinline
func goReads(r interface{ Read([]byte) (int, error) }) {
	var b [1]byte
	if _, err := r.Read(b[:]); err != nil {
		panic(err)
	}
}

//go:noinline
func goSleeps() { time.Sleep(goSleep) }

// goIdles waits until the end of the program.
//
//go:noinline
func goIdles() { <-goNever }

var goNever = make(chan int)

// goWaitKinds returns the kinds of waits.
func goWaitKinds() []goWait {
	c, mu, rw := make(chan int), new(sync.Mutex), new(sync.RWMutex)
	cond := sync.NewCond(new(sync.Mutex))
	mu.Lock()
	rw.Lock()
	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	here, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	there, err := listener.Accept()
	if err != nil {
		panic(err)
	}
	write := func(w interface{ Write([]byte) (int, error) }) {
		if _, err := w.Write([]byte{1}); err != nil {
			panic(err)
		}
	}
	return []goWait{
		{"goReceives", "chan receive", func() { goReceives(c) }, func() { c <- 1 }, true},
		{"goSends", "chan send", func() { goSends(c) }, func() { <-c }, true},
		{"goSelects", "select", func() { goSelects(c) }, func() { c <- 1 }, true},
		// The next wait begins after the lock was taken again.
		{"goLocks", "sync.Mutex.Lock", func() { goLocks(mu); mu.Lock() }, mu.Unlock, true},
		{"goReadLocks", "sync.RWMutex.RLock", func() { goReadLocks(rw); rw.Lock() }, rw.Unlock, true},
		{"goAwaits", "sync.Cond.Wait", func() { goAwaits(cond) }, func() {
			cond.L.Lock()
			cond.Signal()
			cond.L.Unlock()
		}, true},
		{"goReads", "IO wait", func() { goReads(reader) }, func() { write(writer) }, false},
		{"goReads", "IO wait", func() { goReads(here) }, func() { write(there) }, false},
		{"goSleeps", "sleep", goSleeps, func() {}, false},
	}
}

// awaitGoWait waits until a goroutine waits in a function with a reason, as the runtime's own stacks show, and
// returns a time after that.
func awaitGoWait(w goWait, stacks []byte) time.Time {
	for {
		text := stacks[:runtime.Stack(stacks, true)]
		for stack := range bytes.SplitSeq(text, []byte("\n\n")) {
			state, frames, _ := bytes.Cut(stack, []byte("\n"))
			if bytes.Contains(state, []byte("["+w.reason+"]")) && bytes.Contains(frames, []byte("e2e."+w.name+"(")) {
				return time.Now()
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// goroutineWaits waits in each way a known number of times. It prints bounds of the times in ns until the goroutines
// are runnable, and from then on until they run, and the sums of Go's own block profile.
func goroutineWaits() {
	runtime.SetBlockProfileRate(1)
	go goIdles()
	least, most, after := map[string]time.Duration{}, map[string]time.Duration{}, map[string]time.Duration{}
	var profiled []string
	stacks := make([]byte, 1<<20)
	begin := time.Now()
	for _, w := range goWaitKinds() {
		for range goWaits {
			var began, ended time.Time
			done := make(chan bool)
			go func() {
				began = time.Now()
				w.wait()
				ended = time.Now()
				close(done)
			}()
			if w.name == "goSleeps" {
				<-done
				most[w.name] += ended.Sub(began)
				after[w.name] += ended.Sub(began) - goSleep
				continue
			}
			parked := awaitGoWait(w, stacks)
			time.Sleep(time.Millisecond)
			waking := time.Now()
			w.wake()
			woken := time.Now()
			<-done
			least[w.name] += waking.Sub(parked)
			// The network poller finds out later.
			if w.reason == "IO wait" {
				woken = ended
			}
			most[w.name] += woken.Sub(began)
			after[w.name] += ended.Sub(waking)
		}
		if w.profiled {
			profiled = append(profiled, w.name)
		}
	}
	fmt.Printf("idle_most %d\n", time.Since(begin))
	for name := range most {
		fmt.Printf("%s_least %d\n%s_most %d\n%s_after %d\n", name, least[name], name, most[name], name, after[name])
	}
	for name, blocked := range goBlocked(profiled) {
		fmt.Printf("%s_blocked %d\n", name, blocked)
	}
}

// goBlocked returns the times of functions in Go's block profile, with the functions that they call.
func goBlocked(names []string) map[string]time.Duration {
	var text bytes.Buffer
	if err := pprof.Lookup("block").WriteTo(&text, 1); err != nil {
		panic(err)
	}
	var perSecond int64
	if _, err := fmt.Sscanf(text.String(), "--- contention:\ncycles/second=%d\n", &perSecond); err != nil {
		panic(err)
	}
	records := make([]runtime.BlockProfileRecord, 1000)
	n, _ := runtime.BlockProfile(records)
	times := map[string]time.Duration{}
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if name := frame.Function[strings.LastIndexByte(frame.Function, '.')+1:]; slices.Contains(names, name) {
				times[name] += time.Duration(float64(r.Cycles) / float64(perSecond) * 1e9)
			}
		}
	}
	return times
}

// The waits of goroutines have their stacks, reasons and times. The program knows bounds of the times whatever else
// the machine does, and Go's own block profile counts the same waits.
func TestGoroutines(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := asWorkload(t, "waits")
	out := filepath.Join(t.TempDir(), "out.folded")
	// In an emulated VM, the programs that walk by tables take a minute to load.
	r := fulgur(t, "offcpu", "--goroutines", "--unwind", "fp", "-o", out, "--", program)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	own, stacks := numbers(t, r.stdout), readFolded(t, out)
	// Times in folded stacks are in us.
	timeOf := func(function, reason string) (ns, n int) {
		for stack, us := range stacks {
			if strings.Contains(stack, "e2e."+function+";") && strings.HasSuffix(stack, "["+reason+"]") {
				ns += 1000 * us
				n++
			}
		}
		return ns, n
	}
	seen := map[string]bool{}
	for _, w := range goWaitKinds() {
		if seen[w.name] {
			continue
		}
		seen[w.name] = true
		got, n := timeOf(w.name, w.reason)
		t.Logf("%s: %d ns in [%s], want %d to %d ns; in Go's block profile %d ns", w.name, got, w.reason, own[w.name+"_least"], own[w.name+"_most"], own[w.name+"_blocked"])
		if round, least, most := 1000*n, own[w.name+"_least"], own[w.name+"_most"]; got < least-round || got > most+round || n == 0 {
			t.Errorf("%s: waited for %d ns in [%s], want %d to %d ns", w.name, got, w.reason, least, most)
		}
		runnable, n := timeOf(w.name, "runnable")
		if round, most := 1000*n, own[w.name+"_after"]; runnable > most+round {
			t.Errorf("%s: was runnable for %d ns, want at most %d", w.name, runnable, most)
		}
		// The runtime estimates how many cycles a second has.
		blocked, most := own[w.name+"_blocked"], own[w.name+"_most"]
		if differ := max(got-blocked, blocked-got); w.profiled && differ > most-own[w.name+"_least"]+most/50 {
			t.Errorf("%s: waited for %d ns, and for %d ns in Go's block profile", w.name, got, blocked)
		}
	}
	// A wait that does not end counts until the end of its process.
	if idle, _ := timeOf("goIdles", "chan receive"); idle < own["idle_most"]-own["goSleeps_most"] {
		t.Errorf("the goroutine that waits forever: got %d ns, want %d or more", idle, own["idle_most"])
	}
	for stack := range stacks {
		for _, system := range []string{"runtime.bgsweep", "runtime.forcegchelper", "runtime.bgscavenge"} {
			if strings.Contains(stack, system) {
				t.Errorf("got a goroutine of the runtime: %s", stack)
			}
		}
	}
	if !strings.Contains(r.stderr, "of the runtime's own goroutines left out") {
		t.Errorf("the summary does not count the runtime's goroutines: %s", r.stderr)
	}
}

// With the stacks of the goroutines that end the waits.
func TestGoroutinesWakers(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := asWorkload(t, "waits")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "offcpu", "--goroutines", "--waker-stacks", "-o", out, "--", program)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	for stack := range readFolded(t, out) {
		_, waker, ok := strings.Cut(stack, "[sync.Mutex.Lock]")
		if ok && strings.Contains(stack, "e2e.goLocks;") && strings.Contains(waker, "sync.(*Mutex).Unlock") && strings.Contains(waker, "e2e.goroutineWaits") {
			return
		}
	}
	t.Errorf("no wait for the mutex has the stack that unlocks it")
}

// What cannot be measured is refused with the reason.
func TestGoroutinesRefuses(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	sleep := testenv.Command(t, testenv.Tool(t, "sleep"), "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = sleep.Process.Kill(), sleep.Wait() })
	pid := strconv.Itoa(sleep.Process.Pid)
	for want, args := range map[string][]string{
		"none of its files is a Go program": {"-p", pid, "1"},
		"which change threads":              {"-L", pid, "1"},
		"--by peer does not work":           {"--by", "peer", "-p", pid, "1"},
		"can't be used together":            {"--state", "D", "-p", pid, "1"},
	} {
		r := fulgur(t, append([]string{"offcpu", "--goroutines"}, args...)...)
		if r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: got code %d and %q, want 2 and %q", args, r.code, r.stderr, want)
		}
	}
}
