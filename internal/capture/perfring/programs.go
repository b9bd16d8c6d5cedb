package perfring

import (
	"maps"
	"slices"
	"time"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
)

// programs are the measured processes, as of the last record in order.
type programs struct {
	running map[int]*program // by process
	epochs  uint64           // the last one

	// unseen is the number of threads that ended without a sample. departures are the first processes that the kernel
	// stopped to sample, and departed is the number of all.
	unseen     uint64
	departures []Departure
	departed   uint64
}

// program is the program that a process runs.
type program struct {
	// epoch distinguishes it from all other programs, also those that the process ran before, and from itself when its
	// addresses had another meaning.
	epoch   uint64
	since   uint64 // when it began, CLOCK_MONOTONIC in ns
	threads map[int]*thread
	// maps are its mappings as of mapped, CLOCK_MONOTONIC in ns; nil if they are not known, or have changed.
	maps   []process.Mapping
	mapped uint64
	// bare is set from its start until it maps code.
	bare bool
	// image distinguishes it from other programs. changed is set if it may have mapped an interpreter.
	image   uint64
	changed bool
	// code are the functions of interpreters that its samples contain, codeSize bytes.
	code     map[function]*code
	codeSize int
}

// thread is a thread of a program.
type thread struct {
	name    [16]byte
	sampled bool
}

// Departure is the end of the samples of a process that lives on. When a process executes a program that gives it other
// privileges (a set-user-ID program), or that its user may not read, the kernel removes all events from it.
type Departure struct {
	PID int
	// Comm is the name of the program, as the kernel keeps it.
	Comm string
	// After is the time since [Source.Enable].
	After time.Duration

	at uint64 // CLOCK_MONOTONIC, in ns
}

// maxDepartures limits the departures that are kept: more than anyone reads.
const maxDepartures = 10

func newPrograms() programs { return programs{running: map[int]*program{}} }

// epoch returns a new epoch.
func (p *programs) epoch() uint64 {
	p.epochs++
	return p.epochs
}

// begin returns a new program, which began at a time.
func (p *programs) begin(since uint64) *program {
	epoch := p.epoch()
	return &program{epoch: epoch, image: epoch, since: since, threads: map[int]*thread{}, changed: true}
}

// of returns the program that a process runs.
func (p *programs) of(pid int) *program {
	one := p.running[pid]
	if one == nil {
		one = p.begin(0)
		p.running[pid] = one
	}
	return one
}

// thread returns a thread of p. A thread whose start is unknown has its current name.
func (p *program) thread(tid int) *thread {
	t := p.threads[tid]
	if t == nil {
		t = &thread{}
		if stat, err := procfs.Process(tid).Stat(); err == nil {
			t.rename(stat.Comm)
		}
		p.threads[tid] = t
	}
	return t
}

// rename sets the name of a thread.
func (t *thread) rename(name string) {
	t.name = [16]byte{}
	copy(t.name[:len(t.name)-1], name)
}

// apply notes what a record says. began is when the measurement began, math.MaxUint64 if it has not.
func (p *programs) apply(r perfevent.Record, began uint64) {
	switch r := r.(type) {
	case perfevent.Comm:
		p.comm(r)
	case perfevent.Mmap2:
		if one := p.running[r.PID]; one != nil {
			one.bare, one.maps, one.changed = false, nil, true
		}
	case perfevent.Fork:
		name := p.of(r.PPID).thread(r.PTID).name
		if r.PID != r.PPID {
			p.running[r.PID] = p.begin(r.Time) // the ID may be used again
		}
		p.of(r.PID).threads[r.TID] = &thread{name: name}
	case perfevent.Exit:
		p.exit(r, began)
	case perfevent.Lost:
		for _, one := range p.running {
			one.bare, one.maps = false, nil // perhaps
		}
	}
}

// processOf returns the process that a record is about, 0 if it is about none.
func processOf(r perfevent.Record) int {
	switch r := r.(type) {
	case perfevent.Comm:
		return r.PID
	case perfevent.Mmap2:
		return r.PID
	case perfevent.Fork:
		return r.PID
	case perfevent.Exit:
		return r.PID
	}
	return 0
}

// comm handles a new name of a thread.
func (p *programs) comm(r perfevent.Comm) {
	one := p.of(r.PID)
	t := one.threads[r.TID]
	if t == nil {
		t = &thread{}
	}
	t.rename(r.Comm)
	if r.Exec { // its other threads have ended
		one = p.begin(r.Time)
		one.bare = true
		p.running[r.PID] = one
	}
	one.threads[r.TID] = t
}

// exit handles the end of a thread, or of its events. A process ends with its last thread: its first one may end before,
// as when another thread executes a program.
func (p *programs) exit(r perfevent.Exit, began uint64) {
	one := p.running[r.PID]
	if one == nil {
		return
	}
	t := one.threads[r.TID]
	switch {
	case one.bare && r.TID == r.PID:
		// begin_new_exec in the kernel's fs/exec.c renames the thread, and then ends its events, which looks like its end.
		// Another program that ends has mapped code before, if only its own.
		p.departed++
		if t != nil && len(p.departures) < maxDepartures {
			p.departures = append(p.departures, Departure{PID: r.PID, Comm: comm(t.name), at: r.Time})
		}
	case t != nil && !t.sampled && r.Time >= began:
		p.unseen++
	}
	delete(one.threads, r.TID)
	if len(one.threads) == 0 {
		delete(p.running, r.PID)
	}
}

// comm returns a name that the kernel keeps.
func comm(name [16]byte) string {
	if n := slices.Index(name[:], 0); n >= 0 {
		return string(name[:n])
	}
	return string(name[:])
}

// pids returns the processes, in ascending order.
func (p *programs) pids() []int { return slices.Sorted(maps.Keys(p.running)) }
