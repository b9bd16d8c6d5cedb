package stopping

import (
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
	"fulgur/internal/testenv"
)

// take takes all records of s.
func take(t *testing.T, s *Sampler) []perfevent.Record {
	t.Helper()
	records, lost, err := s.Take()
	if lost != 0 || err != nil {
		t.Fatalf("lost %d samples: %v", lost, err)
	}
	return records
}

// Samples stand for all CPU time of their threads until the last one: for a process that never waits, for all of it but that
// since the last samples.
func TestWeights(t *testing.T) {
	testenv.Slow(t)
	pid := launch(t, harm(t), "busy", "2")
	s := start(t, target.Target{Scope: target.Processes, PIDs: []int{pid}})
	testenv.AwaitCPUTime(t, pid, 500*time.Millisecond)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // so that the CPU time of its threads is final
		t.Fatal(err)
	}
	testenv.Await(t, func() bool {
		stat, err := procfs.Process(pid).Stat()
		return err == nil && stat.State == 'T'
	}, func() string { return "the program does not stop" })
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	sums, ran := map[int]uint64{}, map[int]time.Duration{}
	for _, p := range s.processes {
		for _, thread := range p.threads {
			ran[thread.tid] = thread.ran - thread.first
		}
	}
	var sum, samples uint64
	for _, r := range take(t, s) {
		if one, ok := r.(perfring.Interpreted); ok {
			sums[one.TID] += one.Period
			sum += one.Period
			samples++
		}
	}
	if len(sums) != 3 {
		t.Errorf("got samples of the threads %v, want 3", sums)
	}
	for tid := range sums {
		if got, want := time.Duration(sums[tid]), ran[tid]; got != want {
			t.Errorf("thread %d: samples stand for %v, want %v", tid, got, want)
		}
	}
	stats := s.Stats()
	if samples != stats.Samples || samples == 0 {
		t.Errorf("got %d samples, want %d", samples, stats.Samples)
	}
	total := s.Total()
	if total < 500e6 {
		t.Errorf("got %d ns in all, want 500 ms at least", total)
	}
	// At the start, the kernel counts up to a tick of a running thread later than that of its process.
	if tick := uint64(10 * time.Millisecond); sum > total+3*tick {
		t.Errorf("samples stand for %d ns of %d", sum, total)
	}
	t.Logf("samples stand for %.1f %% of %v, %+v", 100*float64(sum)/float64(total), time.Duration(total), stats)
}

// A sample has the registers and the stack of the thread: the program counter is in its code, and the frames that its frame
// pointer leads to are in the copy or beyond.
func TestSample(t *testing.T) {
	pid := launch(t, harm(t), "busy", "0")
	s := start(t, target.Target{Scope: target.Processes, PIDs: []int{pid}})
	testenv.Await(t, func() bool { return s.Stats().Samples > 5 }, func() string { return "no samples" })
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	maps, err := procfs.Process(pid).Maps()
	if err != nil {
		t.Fatal(err)
	}
	known := program{maps: maps}
	mapped := false
	for _, r := range take(t, s) {
		switch r := r.(type) {
		case perfevent.Mmap2:
			mapped = true
		case perfring.Interpreted:
			if !mapped {
				t.Error("got a sample before the mappings of its process")
			}
			if len(r.User.Stack) == 0 || r.User.Mask != perfevent.AllUserRegs || r.User.ABI != perfevent.ABI64 || len(r.Chain) < 16 {
				t.Errorf("got %d bytes of the stack, registers %#x, ABI %d, %d bytes of the chain", len(r.User.Stack), r.User.Mask, r.User.ABI, len(r.Chain))
			}
			if r.PID != pid || r.TID != pid || r.Period == 0 || r.Time == 0 {
				t.Errorf("got %+v", r)
			}
		}
	}
	if !known.covers(s.state.regs.PC()) {
		t.Errorf("the last program counter, %#x, is not in %v", s.state.regs.PC(), maps)
	}
}

// The registers are in the order of perf's mask.
func TestRegisters(t *testing.T) {
	var r tracing.Registers
	if regs, mask := r.Append(nil); mask != perfevent.AllUserRegs || len(regs) != 8*bitsOf(mask) {
		t.Errorf("got the mask %#x and %d bytes", mask, len(regs))
	}
}

func bitsOf(mask uint64) (n int) {
	for ; mask != 0; mask &= mask - 1 {
		n++
	}
	return n
}

// Over time, as many threads are due as CPUs were in use, at the start with a random part of one.
func TestDue(t *testing.T) {
	for _, cpus := range []float64{0.01, 0.3, 1, 1.7, 4} {
		p, sum := process{due: rand.Float64() - 0.5}, 0
		const rounds = 1000
		for range rounds {
			n := p.round(cpus)
			p.settle(n)
			sum += n
		}
		if want := cpus * rounds; float64(sum) < want-1 || float64(sum) > want+1 {
			t.Errorf("%v CPUs: got %d stops in %d rounds, want %.0f", cpus, sum, rounds, want)
		}
		for range 100 { // no thread runs
			p.round(cpus)
			p.settle(0)
		}
		if n := p.round(0); n > 1 {
			t.Errorf("%v CPUs: %d stops are due after rounds without any", cpus, n)
		}
	}
}

// Rounds take a limited share of the CPU time, here and of the target.
func TestPace(t *testing.T) {
	for _, test := range []struct{ wanted, own, held, want time.Duration }{
		{10 * time.Millisecond, 100 * time.Microsecond, 50 * time.Microsecond, 10 * time.Millisecond},
		{time.Millisecond, 200 * time.Microsecond, 50 * time.Microsecond, 2 * time.Millisecond},
		{time.Millisecond, 10 * time.Microsecond, 100 * time.Microsecond, 3300 * time.Microsecond},
		{time.Millisecond, 10 * time.Microsecond, time.Second, heldShare * maxHeldTime},
	} {
		p := newPace(test.wanted)
		for range 100 {
			p.took(test.own, test.held)
		}
		if p.interval != test.want {
			t.Errorf("%+v: got %v", test, p.interval)
		}
		for range 200 {
			p.took(0, 0)
		}
		if p.interval > test.wanted*11/10 {
			t.Errorf("%+v: got %v after rounds without cost", test, p.interval)
		}
	}
}
