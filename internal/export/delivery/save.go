package delivery

import (
	"time"

	"fulgur/internal/message/plain"
)

// saveAgain is the time after which a directory that did not take a profile is tried again.
const saveAgain = 10 * time.Second

// save does the spool's work on files until end is closed and nothing is left to do, or it
// fails.
func (d *Delivery) save(end <-chan struct{}) {
	for {
		again, failed := d.saveAll()
		select {
		case <-end:
			if !failed {
				_, _ = d.saveAll() // what came in between
			}
			return
		case <-again:
		case <-d.unsaved:
		}
	}
}

// saveAll does the spool's work on files until there is none, or it fails: then again
// receives when to go on.
func (d *Delivery) saveAll() (again <-chan time.Time, failed bool) {
	for {
		d.mu.Lock()
		work := d.spool.Next()
		d.mu.Unlock()
		if work == nil {
			return nil, false
		}
		err := work.Do()
		d.mu.Lock()
		d.overflow(work.Done(err))
		if err != nil && !d.full {
			d.log("spool: " + plain.Error(err) + "; windows are kept in memory")
		}
		d.full = err != nil
		d.mu.Unlock()
		if err != nil {
			return time.After(saveAgain), true
		}
	}
}
