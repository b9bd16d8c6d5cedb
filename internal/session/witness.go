package session

import (
	"errors"

	"fulgur/internal/monotonic"
	"fulgur/internal/perfevent"
	"fulgur/internal/process"
)

// sidebandPages is the size of each CPU's sideband ring: room for half a
// second of a busy build's forks and mappings, and for some rounds of
// pollAtMost of a program that does nothing but make memory executable.
const sidebandPages = 128

// witness knows what the machine's processes have mapped, from before the
// first sample on.
type witness struct {
	sideband  *process.Sideband
	processes *process.Table
	// heed is called for every record, nil for nobody.
	heed func(perfevent.Record)

	lost        uint64 // sideband records
	busy        bool   // the last drain met records
	sidebandErr error  // of a drain
}

// listen begins to, and reads the mappings of pids while they can be: a
// command may be gone before its first sample is looked at.
func (w *witness) listen(pids []int) error {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	if w.sideband, err = process.OpenSideband(online, sidebandPages); err != nil {
		return err
	}
	w.processes = process.NewTable(process.Options{Sync: w.drain})
	for _, pid := range pids {
		w.processes.Resolve(pid, 0, monotonic.Now()) // looking up any address does
	}
	return nil
}

// drain brings the processes up to date. The table calls it too, after it read
// /proc, so its error waits for whoever polls.
func (w *witness) drain() {
	lost, err := w.sideband.Drain(func(record perfevent.Record) {
		w.busy = true
		if w.heed != nil {
			w.heed(record)
		}
		w.processes.Apply(record)
	})
	if err != nil {
		w.sidebandErr = err
	}
	w.lost += lost // the table knows from the records among them
}

func (w *witness) close() error {
	var errs []error
	if w.sideband != nil {
		errs = append(errs, w.sideband.Close())
	}
	if w.processes != nil {
		errs = append(errs, w.processes.Close())
	}
	return errors.Join(errs...)
}
