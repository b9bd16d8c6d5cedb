// Package delivery sends the profiles of a spool, the oldest first, and accounts for every
// sample.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/spool"
	"fulgur/internal/message/plain"
)

// Cause is why samples never reached the back end.
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
	// Shutdown: they were only in memory at the end.
	Shutdown Cause = "shutdown"
	// Unrecorded: the kernel side had no room for them.
	Unrecorded Cause = "unrecorded"
)

// Causes lists all causes.
var Causes = []Cause{Refused, Rejected, Overflow, Corrupt, Shutdown, Unrecorded}

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

// Delivery sends profiles. Its methods are safe for concurrent use.
type Delivery struct {
	log func(string)

	mu      sync.Mutex
	spool   *spool.Spool
	account Account
	config  otlpclient.Config
	client  *otlpclient.Client // nil until the first message; used by Run alone
	stale   bool               // client has an old configuration
	changed context.CancelFunc // ends the attempt by an old configuration
	ready   chan struct{}      // has room for one
	ended   chan struct{}
	away    bool // the back end did not take the last message
	full    bool // the spool's directory did not take the last message
}

// New returns a delivery from a spool in which an earlier run left what found says. log
// receives what an administrator should know.
func New(s *spool.Spool, found spool.Found, c otlpclient.Config, log func(string)) *Delivery {
	d := &Delivery{log: log, spool: s, config: c, ready: make(chan struct{}, 1), ended: make(chan struct{})}
	d.account = Account{Found: found.Samples, CorruptFiles: uint64(found.Corrupt), Lost: map[Cause]uint64{}}
	return d
}

// Use changes the back end.
func (d *Delivery) Use(c otlpclient.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config, d.stale = c, true
	if d.changed != nil {
		d.changed()
	}
}

// Unrecorded accounts for samples that are in no profile.
func (d *Delivery) Unrecorded(samples uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.account.Taken += samples
	d.account.Lost[Unrecorded] += samples
}

// Add hands over an encoded profile. It does not wait for the back end.
func (d *Delivery) Add(h spool.Head, message []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost, err := d.spool.Put(h, message)
	d.account.Taken += h.Samples
	for _, h := range lost {
		d.account.Lost[Overflow] += h.Samples
	}
	if err != nil && !d.full {
		d.log("spool: " + plain.Error(err) + "; windows are kept in memory")
	}
	d.full = err != nil
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// Run sends until ctx is done, or everything is sent after [Delivery.End].
func (d *Delivery) Run(ctx context.Context) {
	for ctx.Err() == nil {
		d.mu.Lock()
		e := d.spool.Oldest()
		d.mu.Unlock()
		if e != nil {
			d.send(ctx, e)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.ready:
		case <-d.ended:
			return
		}
	}
}

// End says that nothing more will be added.
func (d *Delivery) End() { close(d.ended) }

// Close closes the spool after Run, and returns the final account.
func (d *Delivery) Close() (Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	final := d.accountLocked()
	lost, err := d.spool.Close()
	if d.client != nil {
		err = errors.Join(err, d.client.Close())
	}
	for _, h := range lost {
		final.Lost[Shutdown] += h.Samples
		final.Waiting.Samples -= h.Samples
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

// send sends an entry, until the back end has answered or the configuration changes.
func (d *Delivery) send(ctx context.Context, e *spool.Entry) {
	d.mu.Lock()
	message, err := d.spool.Message(e)
	if err != nil {
		d.account.Lost[Corrupt] += e.Samples
		d.account.CorruptFiles++
		d.mu.Unlock()
		d.log("spool: " + plain.Error(err))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.changed = cancel
	var old *otlpclient.Client
	if d.client == nil || d.stale {
		old, d.client, d.stale = d.client, otlpclient.New(d.config), false
	}
	client := d.client
	d.mu.Unlock()

	if old != nil {
		_ = old.Close() // nothing waits for its answer
	}
	answer, err := client.Deliver(ctx, message, 0, d.retried)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = nil
	switch {
	case err == nil:
		d.accepted(e, answer, len(message))
	case ctx.Err() != nil:
		d.spool.Release(e)
		return
	default:
		d.account.Lost[Refused] += e.Samples
		d.account.Failures++
		d.report(fmt.Sprintf("%s: dropped %s", plain.Error(err), plain.Count(e.Samples, "sample")))
	}
	d.spool.Remove(e)
}

// accepted accounts for a message that the back end has taken, at least in part.
func (d *Delivery) accepted(e *spool.Entry, answer otlpclient.Answer, size int) {
	rejected := share(e.Samples, uint64(answer.Rejected), e.Profiles)
	d.account.Lost[Rejected] += rejected
	d.account.Acknowledged += e.Samples - rejected
	d.account.Accepted++
	d.account.Bytes += uint64(size)
	switch {
	case answer.Rejected > 0:
		d.report(fmt.Sprintf("the back end rejected %s: %s", plain.Count(uint64(answer.Rejected), "profile"), plain.Terminal(answer.Message)))
	case d.away:
		d.away = false
		d.log("the back end takes profiles again")
	}
}

// share returns the samples in some of the profiles of a message, of which the back end
// does not say more than the number: in proportion, rounded up.
func share(samples, rejected, profiles uint64) uint64 {
	if rejected >= profiles {
		return samples * min(rejected, 1)
	}
	return (samples*rejected + profiles - 1) / profiles
}

// retried notes a message that will be sent again.
func (d *Delivery) retried(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.account.Retries++
	d.report(plain.Error(err) + "; trying again")
}

// report logs a failure unless the last message failed, too.
func (d *Delivery) report(text string) {
	if !d.away {
		d.log(text)
	}
	d.away = true
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
