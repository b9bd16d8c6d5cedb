package stopping

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
	"fulgur/internal/runtimes"
)

const (
	// patience is how long the sampler waits for a thread to stop before it goes on with other processes.
	patience = 2 * time.Millisecond
	// spin is how long it looks all the time, and firstPause and longestPause bound the pauses between looks after that.
	spin                     = 100 * time.Microsecond
	firstPause, longestPause = 10 * time.Microsecond, 200 * time.Microsecond
	// forgetful is how long pauses are short while threads have not stopped. Those are in an uninterruptible wait, most likely.
	forgetful = 100 * time.Millisecond
	latePause = 5 * time.Millisecond
)

// tracee is a thread to which the sampler is attached.
type tracee struct {
	process *process
	thread  *thread
	name    string // of the thread, at the look before
	tid     int    // as of the last look: execve may change it to that of the process
	since   time.Time
	running time.Time // the last time at which it had not stopped
	zombie  bool      // it has ended, and is still attached
}

// state is what a stop reads.
type state struct {
	at    uint64 // CLOCK_MONOTONIC, in ns
	regs  tracing.Registers
	stack []byte
	chain []uint64
	// interpreted are the frames of interpreters.
	interpreted []runtimes.Stack
}

// stop stops a thread, takes a sample of it and lets it go. It reports whether it took a sample, or will do so when the thread
// stops.
func (s *Sampler) stop(p *process, t *thread) bool {
	if err := tracing.Seize(t.tid); err != nil {
		s.refused(p, t.tid, err)
		return false
	}
	one := tracee{process: p, thread: t, name: t.comm, tid: t.tid, since: time.Now()}
	if tracing.Interrupt(t.tid) != nil {
		_ = tracing.Interrupt(p.pid) // if it has executed a program, it has the ID of the process
	}
	one.running = one.since
	for pause := firstPause; ; {
		now := time.Now()
		taken, done := s.tryFinish(&one)
		if done {
			return taken
		}
		one.running = now
		waited := now.Sub(one.since)
		if waited > patience {
			p.late = true
			s.late = append(s.late, one)
			s.stats.Late++
			return true
		}
		if waited > spin {
			tracing.Sleep(int64(pause))
			pause = min(2*pause, longestPause)
		}
	}
}

// tryFinish takes a sample of a tracee and lets it go if it has stopped. done reports that the sampler is not attached to it
// any more.
func (s *Sampler) tryFinish(t *tracee) (taken, done bool) {
	change, gone := t.look()
	switch {
	case gone:
		return false, true
	case change.Ended():
		t.reap()
		return false, true
	case change.Stopped():
		read, done := s.whileStopped(t, change)
		return done && read && s.take(t), done
	}
	return false, false
}

// look returns a change of the tracee's state. gone reports that it is no tracee any more.
func (t *tracee) look() (change tracing.Change, gone bool) {
	change, err := tracing.Wait(t.tid, unix.WNOHANG)
	if errors.Is(err, unix.ECHILD) && t.tid != t.process.pid {
		// It may have executed a program.
		if change, err = tracing.Wait(t.process.pid, unix.WNOHANG); err == nil {
			t.tid = t.process.pid
		}
	}
	return change, err != nil
}

// reap reaps a tracee that has ended, unless it is a child of fulgur, which waits for it elsewhere.
func (t *tracee) reap() {
	if t.process.ours && t.tid == t.process.pid {
		return
	}
	tracing.Reap(t.tid)
}

// whileStopped reads the state of a thread that has stopped, and lets it go. read reports whether s.state is that of a thread
// that was running.
func (s *Sampler) whileStopped(t *tracee, change tracing.Change) (read, done bool) {
	if change.TID == t.thread.tid && (!change.Event() || change.Signal() == unix.SIGTRAP) { // otherwise, stopped by SIGSTOP
		read = s.read(t.process, t.tid)
	}
	done = tracing.Detach(t.tid, change.Passed()) == nil // it may have been killed
	held := time.Since(t.running)
	s.letGoStrays()
	s.stats.stopped(held)
	s.stopped++
	s.held += held
	if !read {
		return false, done
	}
	switch s.state.regs.Call(t.tid) {
	case tracing.Interrupted:
		s.stats.Interrupted++
		s.stats.Waiting++
		return false, done
	case tracing.Restarts:
		s.stats.Waiting++
		return false, done
	}
	return true, done
}

// letGoStrays detaches from stopped threads to which the sampler has not attached: a tracee may pass its tracer on to a
// thread that it starts (CLONE_PTRACE).
func (s *Sampler) letGoStrays() {
	for {
		change, err := tracing.Stopped()
		own := slices.ContainsFunc(s.late, func(t tracee) bool { return t.tid == change.TID || t.process.pid == change.TID })
		if err != nil || change.None() || own || tracing.Detach(change.TID, change.Passed()) != nil {
			return
		}
	}
}

// finishLate takes samples of threads that have stopped late, and lets them go.
func (s *Sampler) finishLate() {
	if len(s.late) == 0 {
		return
	}
	s.letGoStrays()
	late := s.late
	s.late = nil
	for _, one := range late {
		now := time.Now()
		if _, done := s.tryFinish(&one); done {
			one.process.late = one.process.late && one.zombie
			continue
		}
		one.running = now
		// A first thread that has ended before others stays attached until they have. It does not delay an execve.
		if !one.zombie && one.tid == one.process.pid && time.Since(one.since) > forgetful {
			if stat, err := procfs.Process(one.tid).Stat(); err == nil && stat.Exited() {
				one.zombie, one.process.late = true, false
			}
		}
		s.late = append(s.late, one)
	}
}

// latePause returns the time until late threads should be looked at again, 0 if there are none.
func (s *Sampler) latePause() time.Duration {
	if len(s.late) == 0 {
		return 0
	}
	for _, one := range s.late {
		if time.Since(one.since) < forgetful {
			return longestPause
		}
	}
	return latePause
}

// Limits of the chain of frame pointers: frames, and parts of memory beyond the copy of the stack.
const (
	maxChain  = 127
	maxBlocks = 8
	blockSize = 4 << 10
)

// stackCopy is the number of bytes of a stack to copy: enough for some hundred calls between C and an interpreter.
const stackCopy = 64 << 10

// read reads the state of a stopped thread. It reports whether it could.
func (s *Sampler) read(p *process, tid int) bool {
	st := &s.state
	st.at = monotonic.Now()
	if st.regs.Read(tid) != nil {
		return false
	}
	st.chain = append(st.chain[:0], st.regs.PC())
	st.stack, st.interpreted = st.stack[:0], nil
	if st.regs.Foreign() {
		return true
	}
	st.stack = p.memory(tid, st.regs.SP(), s.stack)
	s.follow(p, tid)
	s.interpret(p, tid)
	return true
}

// memory reads memory of a stopped thread.
func (p *process) memory(tid int, addr uint64, buf []byte) []byte {
	if p.mem == nil {
		if got := tracing.Read(tid, addr, buf); len(got) > 0 {
			return got
		}
		// A seccomp filter may refuse the system call, but not the file.
		p.mem, _ = os.Open(procfs.Path(tid, "mem"))
	}
	if p.mem == nil {
		return nil
	}
	n, _ := unix.Pread(int(p.mem.Fd()), buf, int64(addr))
	return buf[:max(n, 0)]
}

// follow appends the return addresses that the chain of frame pointers leads to, even from a thread's own stack to a
// goroutine's.
func (s *Sampler) follow(p *process, tid int) {
	st := &s.state
	sp, copied := st.regs.SP(), st.stack
	var block []byte
	var at uint64 // of block
	frame := func(fp uint64) []byte {
		const size = 16
		if off := fp - sp; off <= uint64(len(copied)) && uint64(len(copied))-off >= size {
			return copied[off : off+size]
		}
		if off := fp - at; off <= uint64(len(block)) && uint64(len(block))-off >= size {
			return block[off : off+size]
		}
		return nil
	}
	blocks := 0
	for fp := st.regs.FP(); fp != 0 && fp%8 == 0 && len(st.chain) < maxChain; {
		words := frame(fp)
		if words == nil && blocks < maxBlocks {
			block, at = p.memory(tid, fp, s.block), fp
			blocks++
			words = frame(fp)
		}
		if words == nil {
			return
		}
		next, pc := binary.NativeEndian.Uint64(words), binary.NativeEndian.Uint64(words[8:])
		if pc == 0 || next == fp {
			return
		}
		st.chain = append(st.chain, pc)
		fp = next
	}
}

// sample returns the state as a sample, with copies of its own.
func (st *state) sample() perfevent.Sample {
	const user = ^uint64(511) // PERF_CONTEXT_USER
	one := perfevent.Sample{Stamp: perfevent.Stamp{Time: st.at}}
	chain := make([]byte, 0, 8*(len(st.chain)+1))
	chain = binary.NativeEndian.AppendUint64(chain, user)
	for _, pc := range st.chain {
		chain = binary.NativeEndian.AppendUint64(chain, pc)
	}
	one.Chain = chain
	if st.regs.Foreign() {
		return one
	}
	regs, mask := st.regs.Append(nil)
	one.User = perfevent.UserState{
		ABI: perfevent.ABI64, Mask: mask, Regs: regs, Stack: append([]byte(nil), st.stack...), Full: len(st.stack) == stackCopy,
	}
	return one
}
