package process

import (
	"errors"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// sidebandPages is the size of each CPU's sideband ring: room for half a
// second of a busy build's forks and mappings, and for some rounds of polls of a
// program that does nothing but make memory executable.
const sidebandPages = 128

// Tracker knows what the machine's processes have mapped, from before the first
// sample on: a [Table] that is told all that a [Sideband] hears. The zero value is
// ready to [Tracker.Listen].
type Tracker struct {
	Sideband  *Sideband
	Processes *Table
	// HandleRecord is called for every record, before the table gets it; nil for nobody.
	HandleRecord func(perfevent.Record)

	// Lost is how many records were lost; Busy says that the last drain met records.
	Lost uint64
	Busy bool
	// DrainErr is the error of a drain.
	DrainErr error
}

// Listen begins to, and reads the mappings of pids while they can be: a
// command may be gone before its first sample is looked at.
func (w *Tracker) Listen(pids []int) error {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	if w.Sideband, err = OpenSideband(online, sidebandPages); err != nil {
		return err
	}
	w.Processes = NewTable(Options{Sync: w.Drain})
	for _, pid := range pids {
		w.Processes.Resolve(pid, 0, monotonic.Now()) // looking up any address does
	}
	return nil
}

// Drain brings the processes up to date. The table calls it too, after it read
// /proc, so its error waits in DrainErr for whoever polls.
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
	w.Lost += lost // the table knows from the records among them
}

// StopListening ends what Listen began, also in part.
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
