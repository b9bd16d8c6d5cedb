// Package delivery sends the profiles of a spool, the oldest first, and accounts for every
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
	// Refused: the back end does not take them, and would not later.
	Refused Cause = "refused"
	// Rejected: the back end took the rest of their window.
	Rejected Cause = "rejected"
	// Overflow: the spool was full, and they were the oldest.
	Overflow Cause = "overflow"
	// Corrupt: their file was damaged.
	Corrupt Cause = "corrupt"
	// Expired: the back end asked to send them again each time, but took others.
	Expired Cause = "expired"
	// Shutdown: they were only in memory at the end.
	Shutdown Cause = "shutdown"
	// Unrecorded: the kernel side had no room for them.
	Unrecorded Cause = "unrecorded"
)

// Causes lists all causes.
var Causes = []Cause{Refused, Rejected, Overflow, Corrupt, Expired, Shutdown, Unrecorded}

// Account says where samples are: Taken + Found = Acknowledged + Waiting.Samples + the sum
// of Lost.
type Account struct {
	// Taken is what this run measured, Found what an earlier run left in the spool.
	Taken, Found uint64
	// Acknowledged is what the back end has.
	Acknowledged uint64
	Waiting      spool.Usage
	Lost         map[Cause]uint64
	// Requests that were accepted, were tried again, and failed; and bytes that were sent,
	// before compression.
	Accepted, Retries, Failures, Bytes uint64
	// CorruptFiles is the number of files that were set aside.
	CorruptFiles uint64
}

// Delivery sends profiles. Its methods are safe for concurrent use, and wait for neither the
// disk nor the back end unless they say so.
type Delivery struct {
	log func(string)

	mu      sync.Mutex
	spool   *spool.Spool
	account Account
	turns   turns
	config  otlpclient.Config
	client  *otlpclient.Client // nil until the first message; used by Run alone
	stale   bool               // client has an old configuration
	changed context.CancelFunc // ends the attempt by an old configuration
	ending  bool               // nothing more will be added
	away    bool               // the back end did not take the last message
	full    bool               // the spool's directory did not take the last message

	ready   chan struct{} // has room for one: there may be something to send
	unsaved chan struct{} // likewise: there may be work on files
}

// New returns a delivery from a spool in which an earlier run left what found says. log
// receives what an administrator should know.
func New(s *spool.Spool, found spool.Found, c otlpclient.Config, log func(string)) *Delivery {
	d := &Delivery{log: log, spool: s, config: c, ready: make(chan struct{}, 1), unsaved: make(chan struct{}, 1)}
	d.turns = newTurns()
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

// Begin says that the measurement has begun.
func (d *Delivery) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spool.Begin()
	signal(d.unsaved)
}

// Use changes the back end.
func (d *Delivery) Use(c otlpclient.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config, d.stale, d.turns = c, true, newTurns()
	if d.changed != nil {
		d.changed()
	}
	signal(d.ready)
}

// Unrecorded accounts for samples that are in no profile.
func (d *Delivery) Unrecorded(samples uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.account.Taken += samples
	d.account.Lost[Unrecorded] += samples
}

// Add hands over an encoded profile.
func (d *Delivery) Add(h spool.Head, message []byte) {
	r, err := spool.NewRecord(h, message)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.account.Taken += h.Samples
	if err != nil { // of zstd's options, which are constant
		d.account.Lost[Corrupt] += h.Samples
		return
	}
	d.overflow(d.spool.Put(r))
	signal(d.ready)
	signal(d.unsaved)
}

// overflow accounts for entries that had to give way.
func (d *Delivery) overflow(lost []*spool.Entry) {
	for _, e := range lost {
		d.account.Lost[Overflow] += e.Samples
		d.turns.forget(e)
	}
}

// End says that nothing more will be added.
func (d *Delivery) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending = true
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

// Finish sends what is left, for a few seconds, after [Delivery.End]; running is closed
// when Run returns, and stop ends it.
func (d *Delivery) Finish(running <-chan struct{}, stop context.CancelFunc) {
	d.End()
	select {
	case <-running:
	case <-time.After(flushTime):
	}
	stop()
	<-running
}
