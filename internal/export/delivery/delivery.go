// Package delivery sends the profiles in a spool, the oldest first, and accounts for every
// sample.
package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/spool"
)

// Cause is the reason why samples never reached the back end.
type Cause string

// The causes.
const (
	// Refused: the back end refused them permanently.
	Refused Cause = "refused"
	// Rejected: the back end rejected them, but accepted other profiles in the same message.
	Rejected Cause = "rejected"
	// Overflow: they were the oldest samples in a full spool.
	Overflow Cause = "overflow"
	// Corrupt: their file was damaged.
	Corrupt Cause = "corrupt"
	// Expired: the back end kept asking for a retry, while it accepted others.
	Expired Cause = "expired"
	// Shutdown: they were only in memory when the run ended.
	Shutdown Cause = "shutdown"
	// Unrecorded: the kernel side had no room for them.
	Unrecorded Cause = "unrecorded"
)

// Causes lists all causes.
var Causes = []Cause{Refused, Rejected, Overflow, Corrupt, Expired, Shutdown, Unrecorded}

// Account counts samples by their state: Taken + Found = Acknowledged + Waiting.Samples + the
// sum of Lost.
type Account struct {
	// Taken is the number of samples from this run, Found the number that an earlier run left
	// in the spool.
	Taken, Found uint64
	// Acknowledged is the number of samples that the back end accepted.
	Acknowledged uint64
	Waiting      spool.Usage
	Lost         map[Cause]uint64
	// Accepted, Retries and Failures are numbers of requests: accepted, to be sent again, and
	// failed permanently. Bytes is the size of the accepted messages before compression.
	Accepted, Retries, Failures, Bytes uint64
	// CorruptFiles is the number of corrupt files that were set aside.
	CorruptFiles uint64
}

// Delivery sends profiles. Its methods are safe for concurrent use. Only [Delivery.Run],
// [Delivery.Finish] and [Delivery.Close] wait for the disk or the back end.
type Delivery struct {
	log func(string)

	mu       sync.Mutex
	spool    *spool.Spool
	account  Account
	schedule schedule
	config   otlpclient.Config
	client   *otlpclient.Client // nil until the first message; used by Run alone
	stale    bool               // client is to be replaced
	changed  context.CancelFunc // ends the attempt by a client that is to be replaced
	ending   bool               // nothing more will be added
	sent     time.Time          // when the last attempt began
	sends    reports
	stores   reports // of windows to the spool's files
	broken   bool    // other work on these files has failed, which is logged once

	ready   chan struct{} // buffered: there may be something to send
	unsaved chan struct{} // buffered: there may be work on files
}

// New returns a delivery from a spool. found describes the profiles that an earlier run left
// there. log receives messages for the administrator.
func New(s *spool.Spool, found spool.Found, c otlpclient.Config, log func(string)) *Delivery {
	d := &Delivery{log: log, spool: s, config: c, ready: make(chan struct{}, 1), unsaved: make(chan struct{}, 1)}
	d.schedule = newSchedule()
	d.sends.again, d.stores.again = "the back end accepts profiles again", "spool: windows are written again"
	d.account = Account{Found: found.Samples, CorruptFiles: uint64(found.Corrupt), Lost: map[Cause]uint64{}}
	return d
}

// signal wakes a goroutine that waits for c.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Begin records that the measurement has begun.
func (d *Delivery) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spool.Begin()
	signal(d.unsaved)
}

// Use changes the configuration of the back end, and interrupts an attempt with the old one.
func (d *Delivery) Use(c otlpclient.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config, d.schedule = c, newSchedule()
	d.reconnect()
}

// reconnect makes the next attempt use a new client, and interrupts an attempt with the old one.
func (d *Delivery) reconnect() {
	d.stale = true
	if d.changed != nil {
		d.changed()
	}
	signal(d.ready)
}

// Unrecorded counts samples that the kernel side could not record.
func (d *Delivery) Unrecorded(samples uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.account.Taken += samples
	d.account.Lost[Unrecorded] += samples
}

// Add adds an encoded profile to the spool.
func (d *Delivery) Add(h spool.Head, message []byte) {
	r, err := spool.NewRecord(h, message)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.account.Taken += h.Samples
	if err != nil { // impossible: zstd's options are constant
		d.account.Lost[Corrupt] += h.Samples
		return
	}
	d.overflow(d.spool.Put(r))
	signal(d.ready)
	signal(d.unsaved)
}

// overflow counts the samples of evicted entries.
func (d *Delivery) overflow(lost []*spool.Entry) {
	for _, e := range lost {
		d.account.Lost[Overflow] += e.Samples
		d.schedule.forget(e)
	}
}

// End records that no more profiles will be added. If the back end has been failing, End also starts
// an attempt at once, whatever the waits: there is no later one for profiles that are only in memory.
func (d *Delivery) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending = true
	if d.schedule.resetBackoff() {
		// A connection that failed may hang, and gRPC's have waits of their own.
		d.reconnect()
	}
	signal(d.ready)
}

// Close closes the spool after Run, and returns the final account.
func (d *Delivery) Close() (Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	final := d.accountLocked()
	lost, err := d.spool.Close()
	if d.client != nil {
		err = errors.Join(err, d.client.Close())
	}
	final.Waiting.Memory = 0
	for _, e := range lost {
		final.Lost[Shutdown] += e.Samples
		final.Waiting.Samples -= e.Samples
		final.Waiting.Entries--
	}
	return final, err
}

// Account returns the account so far.
func (d *Delivery) Account() Account {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accountLocked()
}

func (d *Delivery) accountLocked() Account {
	a := d.account
	a.Waiting = d.spool.Usage()
	a.Lost = map[Cause]uint64{}
	for _, cause := range Causes {
		a.Lost[cause] = d.account.Lost[cause]
	}
	return a
}

// flushTime limits how long a delivery goes on after the end of the measurement.
const flushTime = 5 * time.Second

// Finish calls [Delivery.End] and gives [Delivery.Run] a few seconds to send the remaining
// profiles. running is closed when Run returns, and stop cancels Run's context.
func (d *Delivery) Finish(running <-chan struct{}, stop context.CancelFunc) {
	d.End()
	select {
	case <-running:
	case <-time.After(flushTime):
	}
	stop()
	<-running
}
