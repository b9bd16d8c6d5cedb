package perfring

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// rings is a [Feed] of perf events. A goroutine reads their rings. With copies of stacks, a ring has room for some 30
// samples: fewer than arrive between two polls of a busy session.
type rings struct {
	options       *Options
	events        *events
	enabled       atomic.Bool
	before, total uint64 // counts of the events: before the beginning, and from then until the end

	mu    sync.Mutex // for the rings and what follows
	fresh []perfevent.Record
	held  int64 // bytes of the samples in fresh
	// heldLooks are the bytes of the looks in fresh, which samples must not displace: each is the only one of its wait.
	heldLooks int64
	// lost is the number of samples that the kernel dropped, or for which fresh had no room, and dropped that of other records.
	lost, dropped uint64
	err           error // the first
	// lookout finds the stacks of threads that wait, nil if they are not wanted. ended is set before the end of the events. Before
	// the last read, all records had been read at lastRead, CLOCK_MONOTONIC in ns. From droppedAt on, fresh had no room for switches;
	// 0 if it had.
	lookout             *lookout
	ended               bool
	lastRead, droppedAt uint64

	stop chan struct{} // nil before the start and after the end
	done chan struct{}
}

// Times between two reads of the rings: readAtLeast is the longest, readOften that of events of unknown rate.
const (
	readAtLeast = 100 * time.Millisecond
	readOften   = 5 * time.Millisecond
)

// interval returns the time between two reads of the rings: a quarter of the time in which the largest samples fill a ring.
//
// The rings' descriptors become readable, too, but the kernel's perf_poll reports this only once. Through the nested
// epoll instances that Go uses, most of these reports get lost.
func (r *rings) interval() time.Duration {
	rate := r.options.Frequency
	if p := r.options.Period; p > 0 {
		if !r.options.Spec.IsTime() {
			return readOften
		}
		rate = uint64(time.Second) / p
	}
	most := readAtLeast
	if r.lookout != nil {
		most = lookEvery
	}
	samples := time.Duration(r.events.smallest) / (stackCopy + 1<<10)
	return min(max(samples*time.Second/time.Duration(max(rate, 1))/4, time.Millisecond), most)
}

// maxFresh limits the records between two polls of the session.
const maxFresh = 1 << 18

// start starts the goroutine.
func (r *rings) start() {
	stop, done := make(chan struct{}), make(chan struct{})
	r.stop, r.done = stop, done
	every := time.NewTicker(r.interval())
	go func() {
		runtime.LockOSThread() // see threadTime
		defer runtime.UnlockOSThread()
		defer close(done)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case <-every.C:
			}
			r.mu.Lock()
			r.read()
			r.mu.Unlock()
			r.lookOut()
		}
	}()
}

// Threads implements [Feed].
func (r *rings) Threads() map[int]int { return r.events.threads }

// Enable implements [Feed].
func (r *rings) Enable() (err error) {
	r.before, err = r.events.total()
	r.enabled.Store(true)
	return err
}

// Disable implements [Feed].
func (r *rings) Disable() error {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	if err := r.events.disable(); err != nil {
		return err
	}
	total, err := r.events.total()
	r.total = total - min(total, r.before)
	return err
}

// Total implements [Feed]. The time of children that are strangers to the target is not known.
func (r *rings) Total() uint64 {
	if r.events.strangers {
		return 0
	}
	return r.total
}

// FollowCPUs implements [Feed].
func (r *rings) FollowCPUs(online []int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events.follow(online, r.options.Target)
}

// Close implements [Feed].
func (r *rings) Close() error {
	if r.stop != nil {
		close(r.stop)
		<-r.done
		r.stop = nil
	}
	return r.events.close()
}

// read reads the rings. The caller holds the lock.
func (r *rings) read() {
	lost, err := r.events.read(r.keep)
	if r.enabled.Load() {
		r.lost += lost
	}
	now := monotonic.Now()
	if lost > 0 && r.lookout != nil {
		r.fresh = append(r.fresh, gap{perfevent.Stamp{Time: r.lastRead}, now})
	}
	r.lastRead = now
	if r.err == nil {
		r.err = err
	}
}

// Take implements [Feed].
func (r *rings) Take() (fresh []perfevent.Record, lost uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	fresh, lost, err = r.fresh, r.lost, r.err
	if r.dropped > 0 { // the mappings of processes are read again
		fresh = append(fresh, perfevent.Lost{Stamp: perfevent.Stamp{Time: monotonic.Now()}, N: r.dropped})
	}
	if r.droppedAt > 0 {
		fresh = append(fresh, gap{perfevent.Stamp{Time: r.droppedAt}, monotonic.Now()})
		r.droppedAt = 0
	}
	r.fresh, r.held, r.heldLooks, r.lost, r.dropped, r.err = nil, 0, 0, 0, 0, nil
	return fresh, lost, err
}

// keep stores a record of a ring. The caller holds the lock.
func (r *rings) keep(record perfevent.Record) {
	if r.lookout != nil {
		r.lookout.note(record)
	}
	one, ok := record.(perfevent.Sample)
	switch {
	case ok && !r.enabled.Load():
		return
	case ok && (r.held > maxHeld/2 || len(r.fresh) > maxFresh):
		r.lost++
		return
	case len(r.fresh) > maxFresh:
		r.dropped++
		if turn, ok := record.(perfevent.Switch); ok && r.lookout != nil {
			r.droppedAt = min(cmp.Or(r.droppedAt, turn.Time), turn.Time)
		}
		return
	case ok:
		one.Chain, one.User.Regs, one.User.Stack = slices.Clone(one.Chain), slices.Clone(one.User.Regs), slices.Clone(one.User.Stack)
		r.held += int64((&Interpreted{Sample: one}).Size())
		record = one
	}
	r.fresh = append(r.fresh, record)
}

// isDouble reports whether a sample is of an event that a thread with events of its own has inherited as well.
func (r *rings) isDouble(s perfevent.Sample) bool {
	owner, known := r.events.owners[s.ID]
	_, own := r.events.threads[s.TID]
	return known && owner != s.TID && own
}

// exited notes the end of a thread.
func (r *rings) exited(tid int) { delete(r.events.threads, tid) }
