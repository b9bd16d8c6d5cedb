package process

import (
	"errors"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// sidebandPages is the size of each CPU's ring for mappings; the ring for forks, execs and exits
// is half as large. Each has room for half a second of a busy build, or for a few polls of a
// program that constantly makes memory executable. With their headers, they stay below the default
// limit on locked memory, 516 KiB for each CPU.
const sidebandPages = 64

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

	// Lost is the number of lost records. Drain sets Busy if it read any records; the caller
	// resets it.
	Lost uint64
	Busy bool
	// DrainErr is the last error of Drain, for the poller to check.
	DrainErr error
}

// Listen starts to listen, and reads the mappings of pids at once: a command may end before
// its first sample is processed.
func (t *Tracker) Listen(pids []int) error {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	if t.Sideband, err = OpenSideband(online, sidebandPages, t.Cgroups); err != nil {
		return err
	}
	t.Processes = NewTable(Options{Sync: t.Drain})
	for _, pid := range pids {
		t.Processes.Resolve(pid, 0, monotonic.Now()) // resolving any address reads the mappings
	}
	return nil
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
