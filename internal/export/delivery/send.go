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

// Run sends profiles, and writes waiting ones to files, until ctx is done, or until all are
// sent after [Delivery.End]. Then it waits a few seconds for the disk.
func (d *Delivery) Run(ctx context.Context) {
	var saving sync.WaitGroup
	end, saved := make(chan struct{}), make(chan struct{})
	saving.Go(func() { d.save(end) })
	for d.next(ctx) {
	}
	close(end)
	go func() {
		defer close(saved)
		saving.Wait()
	}()
	select {
	case <-saved:
	case <-time.After(flushTime):
	}
}

// pace is the time between two attempts, except at the end. After a long outage, thousands of windows wait.
// Sending them all at once would take a CPU for many seconds, on all machines of a fleet at the same time.
const pace = 50 * time.Millisecond

// next sends an entry, or waits until there may be one to send. It returns false at the end.
func (d *Delivery) next(ctx context.Context) bool {
	d.mu.Lock()
	now := time.Now()
	e, at := d.schedule.next(d.spool.All(), now, d.ending)
	var read func() ([]byte, error)
	if paced := d.sent.Add(pace); !d.ending && at.Before(paced) {
		at = paced
	}
	if e != nil && !at.After(now) {
		read, d.sent = d.spool.Reader(e), now
	}
	ending := d.ending
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil, e == nil && ending:
		return false
	case read != nil:
		d.send(ctx, e, read)
		return true
	}
	var due <-chan time.Time
	if e != nil {
		timer := time.NewTimer(at.Sub(now))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-d.ready:
	case <-due:
	}
	return true
}

// send sends an entry once.
func (d *Delivery) send(ctx context.Context, e *spool.Entry, read func() ([]byte, error)) {
	message, err := read()
	if err != nil {
		d.unread(e, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	d.changed = cancel
	var old *otlpclient.Client
	if d.client == nil || d.stale {
		old, d.client, d.stale = d.client, otlpclient.New(d.config), false
	}
	client := d.client
	d.mu.Unlock()

	if old != nil {
		_ = old.Close() // no request is in flight
	}
	answer, err := client.Send(ctx, message)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = nil
	d.spool.Release(e)
	var failed *otlpclient.Error
	switch {
	case err == nil:
		d.accepted(e, answer, len(message))
		d.remove(e)
	case ctx.Err() != nil:
	case errors.As(err, &failed) && failed.Retry:
		d.retry(e, failed)
	default:
		d.account.Lost[Refused] += e.Samples
		d.account.Failures++
		d.report(&d.sends, refused, fmt.Sprintf("%s: dropped %s", plain.Error(err), plain.Count(e.Samples, "sample")))
		d.remove(e)
	}
}

// remove removes an entry that has been sent or lost.
func (d *Delivery) remove(e *spool.Entry) {
	d.schedule.forget(e)
	d.spool.Remove(e)
	signal(d.unsaved)
}

// retry schedules an entry to be sent again, or drops it if only this entry keeps failing.
func (d *Delivery) retry(e *spool.Entry, err *otlpclient.Error) {
	d.account.Retries++
	if d.schedule.failed(e, time.Now(), err.After) {
		d.account.Lost[Expired] += e.Samples
		d.account.Failures++
		d.log(fmt.Sprintf("%s, repeatedly, while others were accepted: dropped %s", plain.Error(err), plain.Count(e.Samples, "sample")))
		d.remove(e)
		return
	}
	d.report(&d.sends, retried, plain.Error(err)+"; trying again")
}

// unread handles an entry whose file could not be read. If the file is corrupt, the entry is
// lost; otherwise it is read again later.
func (d *Delivery) unread(e *spool.Entry, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spool.Release(e)
	if !errors.Is(err, spool.ErrCorrupt) {
		if d.schedule.unread(e, time.Now()) {
			d.log("spool: " + plain.Error(err) + "; trying again")
		}
		return
	}
	d.account.Lost[Corrupt] += e.Samples
	d.account.CorruptFiles++
	d.log("spool: " + plain.Error(err))
	d.schedule.forget(e)
	d.spool.SetAside(e)
	signal(d.unsaved)
}

// accepted accounts for a message that the back end accepted, at least in part.
func (d *Delivery) accepted(e *spool.Entry, answer otlpclient.Answer, size int) {
	missing := share(e.Samples, uint64(answer.Rejected), e.Profiles)
	d.account.Lost[Rejected] += missing
	d.account.Acknowledged += e.Samples - missing
	d.account.Accepted++
	d.account.Bytes += uint64(size)
	d.schedule.accepted()
	if answer.Rejected > 0 {
		d.report(&d.sends, rejected, fmt.Sprintf("the back end rejected %s: %s", plain.Count(uint64(answer.Rejected), "profile"), plain.Terminal(answer.Message)))
		return
	}
	d.report(&d.sends, accepted, "")
}

// share estimates the samples in the rejected profiles of a message, in proportion to the
// number of profiles and rounded up. The back end returns only the number of rejected
// profiles.
func share(samples, rejected, profiles uint64) uint64 {
	if rejected >= profiles {
		return samples * min(rejected, 1)
	}
	return (samples*rejected + profiles - 1) / profiles
}

// report logs the outcome of an attempt, see [reports].
func (d *Delivery) report(r *reports, o outcome, failure string) {
	if text := r.message(o, failure, time.Now()); text != "" {
		d.log(text)
	}
}
