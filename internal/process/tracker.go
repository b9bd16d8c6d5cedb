package process

import (
	"errors"
	"os"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// Sizes in bytes. The ring for forks, execs and exits is half as large as the one for mappings. A
// ring that is half full is read at once.
const (
	// usualRing is the size of each CPU's ring for mappings. It has room for half a second of a busy
	// build, or for a few polls of a program that constantly makes memory executable.
	usualRing = 256 << 10
	// smallestRing has room for some 80 starts of programs on its CPU.
	smallestRing = 64 << 10
	// ringsOfCPU is the default limit on locked memory for each CPU. With pages of 64 KiB, whose
	// headers are large, rings of the usual size would exceed it.
	ringsOfCPU = 516 << 10
	// ringsOfAll is the limit for the rings of all CPUs, unless they have the smallest size.
	ringsOfAll = 32 << 20
)

// sidebandPages returns the number of data pages of the ring for mappings, a power of two.
func sidebandPages(cpus, pageSize int) int {
	size := usualRing
	for size > smallestRing && (rings(size, pageSize)+2*pageSize > ringsOfCPU || cpus*rings(size, pageSize) > ringsOfAll) {
		size /= 2
	}
	return max(size/pageSize, 2)
}

// rings returns the size of the two rings of a CPU, with their headers.
func rings(size, pageSize int) int { return size + size/2 + 2*pageSize }

// Listener receives mapping, fork, exec and exit records: a [Sideband] those of all processes, other listeners those of
// the processes that they measure.
type Listener interface {
	// FDs returns descriptors that become readable when records should be read.
	FDs() []int
	// Drain reads the records, and calls fn in order of time, for each record once no earlier one can arrive.
	// It returns the number of records that the kernel dropped.
	Drain(fn func(perfevent.Record)) (lost uint64, err error)
	// FollowCPUs is called when CPUs come online or go offline.
	FollowCPUs(online []int) error
	Close() error
}

// Tracker tracks the mappings of processes from before the first sample: it
// feeds a [Table] with the records of a [Listener]. The zero value is ready for
// [Tracker.Listen].
type Tracker struct {
	Sideband  Listener
	Processes *Table
	// Cgroups also requests records of new cgroups, for HandleRecord.
	Cgroups bool
	// HandleRecord, if not nil, is called for every record before the table processes it.
	HandleRecord func(perfevent.Record)

	// Lost is the number of lost records. Drain sets Busy if it read any records; the caller
	// resets it.
	Lost uint64
	Busy bool
	// DrainErr is the last error of Drain, for the poller to check.
	DrainErr error
}

// Listen starts to listen to all processes, and reads the mappings of pids at once: a command may end before
// its first sample is processed.
func (t *Tracker) Listen(pids []int) error {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	all, err := OpenSideband(online, sidebandPages(len(online), os.Getpagesize()), t.Cgroups)
	if err != nil {
		return err
	}
	t.ListenTo(all, pids)
	return nil
}

// ListenTo is like [Tracker.Listen], with the records of a listener, which the tracker closes.
func (t *Tracker) ListenTo(l Listener, pids []int) {
	t.Sideband = l
	t.Processes = NewTable(Options{Sync: t.Drain})
	for _, pid := range pids {
		t.Processes.Resolve(pid, 0, monotonic.Now()) // resolving any address reads the mappings
	}
}

// Drain updates the processes. The table also calls it after reading /proc, so it stores
// its error in DrainErr for the poller.
func (t *Tracker) Drain() {
	lost, err := t.Sideband.Drain(func(record perfevent.Record) {
		t.Busy = true
		if t.HandleRecord != nil {
			t.HandleRecord(record)
		}
		t.Processes.Apply(record)
	})
	t.Processes.Applied()
	if err != nil {
		t.DrainErr = err
	}
	t.Lost += lost // the table handles the Lost records themselves
}

// StopListening undoes Listen, even if that failed halfway.
func (t *Tracker) StopListening() error {
	var errs []error
	if t.Sideband != nil {
		errs = append(errs, t.Sideband.Close())
	}
	if t.Processes != nil {
		errs = append(errs, t.Processes.Close())
	}
	return errors.Join(errs...)
}
