package process

import (
	"errors"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// sidebandPages is the size of each CPU's sideband ring: room for half a second of a busy
// build's forks and mappings, or for a few polls of a program that constantly makes
// memory executable.
const sidebandPages = 128

// Tracker tracks the mappings of the machine's processes from before the first sample: it
// feeds a [Table] with the records of a [Sideband]. The zero value is ready for
// [Tracker.Listen].
type Tracker struct {
	Sideband  *Sideband
	Processes *Table
	// Cgroups also requests records of new cgroups, for HandleRecord.
	Cgroups bool
	// HandleRecord, if not nil, is called for every record before the table processes it.
	HandleRecord func(perfevent.Record)

	// Lost is the number of lost records. Busy reports whether the last drain read any
	// records.
	Lost uint64
	Busy bool
	// DrainErr is the error of a drain, to be checked by the poller.
	DrainErr error
}

// Listen starts to listen, and reads the mappings of pids while that is possible: a
// command may end before its first sample is processed.
func (w *Tracker) Listen(pids []int) error {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	if w.Sideband, err = OpenSideband(online, sidebandPages, w.Cgroups); err != nil {
		return err
	}
	w.Processes = NewTable(Options{Sync: w.Drain})
	for _, pid := range pids {
		w.Processes.Resolve(pid, 0, monotonic.Now()) // resolving any address reads the mappings
	}
	return nil
}

// Drain updates the processes. The table also calls it after reading /proc, so it stores
// its error in DrainErr for the poller.
func (w *Tracker) Drain() {
	lost, err := w.Sideband.Drain(func(record perfevent.Record) {
		w.Busy = true
		if w.HandleRecord != nil {
			w.HandleRecord(record)
		}
		w.Processes.Apply(record)
	})
	w.Processes.Applied()
	if err != nil {
		w.DrainErr = err
	}
	w.Lost += lost // the table handles the Lost records themselves
}

// StopListening undoes Listen, even if that failed halfway.
func (w *Tracker) StopListening() error {
	var errs []error
	if w.Sideband != nil {
		errs = append(errs, w.Sideband.Close())
	}
	if w.Processes != nil {
		errs = append(errs, w.Processes.Close())
	}
	return errors.Join(errs...)
}
