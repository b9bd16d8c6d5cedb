package delivery

import (
	"time"

	"fulgur/internal/message/plain"
)

// saveRetry is the time until the next attempt after work on files has failed.
const saveRetry = 10 * time.Second

// save does the spool's work on files until end is closed. Then it does the remaining work,
// unless the last attempt failed.
func (d *Delivery) save(end <-chan struct{}) {
	for {
		again, failed := d.saveAll()
		select {
		case <-end:
			if !failed {
				_, _ = d.saveAll() // work that was added in between
			}
			return
		case <-again:
		case <-d.unsaved:
		}
	}
}

// saveAll does all of the spool's work on files. If an attempt fails, again receives at the
// time of the next one.
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
		switch {
		case err != nil && work.Stores:
			d.report(&d.stores, retried, "spool: "+plain.Error(err)+"; windows are kept in memory")
		case work.Stores:
			d.report(&d.stores, accepted, "")
		case err != nil && !d.broken:
			d.broken = true
			d.log("spool: " + plain.Error(err))
		}
		d.mu.Unlock()
		if err != nil {
			return time.After(saveRetry), true
		}
	}
}
