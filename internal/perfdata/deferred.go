package perfdata

import (
	"bytes"
	"cmp"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
)

// deferrals joins samples with user call chains that were left for later (perf record --call-graph
// fp,defer): the kernel walks them when the thread returns to user space, and writes one record for all
// samples since. perf sorts records by time, and so finds the samples first. In the file, either may be
// first, since the thread may have changed the CPU.
type deferrals struct {
	waiting map[deferral][]taken
	chains  map[deferral][]byte
	// order has the keys of both, oldest first, for when there is no room.
	order []deferral
	bytes int // of all samples and chains
}

// deferral identifies a user call chain.
type deferral struct {
	tid    int32
	cookie uint64
}

// maxDeferred bounds the samples and chains that wait for each other, in bytes, with deferredSize for
// each in addition to its parts. A thread returns from the kernel soon, or at its end.
const (
	maxDeferred  = 64 << 20
	deferredSize = 500
)

// wait delivers a sample as soon as its user call chain is known.
func (d *deferrals) wait(c *chains, t taken, cookie uint64) error {
	key := deferral{int32(t.TID), cookie}
	if chain, ok := d.chains[key]; ok {
		t.deferred = chain
		return c.deliver(t)
	}
	// The parts of the record are gone with the next one.
	kept := *t.Sample
	kept.Reads, kept.Chain, kept.Branches = bytes.Clone(kept.Reads), bytes.Clone(kept.Chain), bytes.Clone(kept.Branches)
	kept.Raw, kept.User = nil, perfevent.UserState{}
	t.Sample = &kept
	if d.waiting == nil {
		d.waiting, d.chains = map[deferral][]taken{}, map[deferral][]byte{}
	}
	if d.waiting[key] == nil {
		d.order = append(d.order, key)
	}
	d.waiting[key] = append(d.waiting[key], t)
	d.bytes += deferredBytes(&kept)
	return d.limit(c)
}

// deferredBytes returns what a waiting sample takes.
func deferredBytes(s *perfevent.Sample) int {
	return deferredSize + len(s.Reads) + len(s.Chain) + len(s.Branches)
}

// found delivers the samples that wait for a user call chain. The chain is kept for samples that the
// file has later.
func (d *deferrals) found(c *chains, key deferral, chain []byte) error {
	for _, t := range d.take(key) {
		t.deferred = chain
		if err := c.deliver(t); err != nil {
			return err
		}
	}
	if d.chains == nil {
		d.waiting, d.chains = map[deferral][]taken{}, map[deferral][]byte{}
	}
	if d.chains[key] == nil {
		d.order = append(d.order, key)
		d.chains[key] = append([]byte{}, chain...)
		d.bytes += deferredSize + len(chain)
	}
	return d.limit(c)
}

// take returns the samples that wait for a chain, and no longer keeps them.
func (d *deferrals) take(key deferral) []taken {
	list := d.waiting[key]
	delete(d.waiting, key)
	for _, t := range list {
		d.bytes -= deferredBytes(t.Sample)
	}
	return list
}

// limit gives up what has waited for longest, as long as there is no room.
func (d *deferrals) limit(c *chains) error {
	for d.bytes > maxDeferred && len(d.order) > 0 {
		key := d.order[0]
		d.order = d.order[1:]
		if err := d.drop(c, key); err != nil {
			return err
		}
	}
	return nil
}

// drop forgets a chain, and delivers the samples that wait for it without one.
func (d *deferrals) drop(c *chains, key deferral) error {
	if chain := d.chains[key]; chain != nil {
		delete(d.chains, key)
		d.bytes -= deferredSize + len(chain)
	}
	var first error
	for _, t := range d.take(key) {
		t.missing = true
		first = cmp.Or(first, c.deliver(t))
	}
	return first
}

// finish delivers all samples that still wait.
func (d *deferrals) finish(c *chains) error {
	for _, key := range d.order {
		if err := d.drop(c, key); err != nil {
			return err
		}
	}
	return nil
}

// deferredChain processes a PERF_RECORD_CALLCHAIN_DEFERRED: a cookie and a call chain, and the thread at
// the end.
func (c *chains) deferredChain(rec record) error {
	a, ok := c.file.attrs.other(rec.body)
	size, _ := a.Trailer(unix.PERF_SAMPLE_TID)
	if !ok || len(rec.body) < size {
		return c.omit(c.file.errorf(rec.offset, "record of type %d cut short", rec.typ))
	}
	f, id := perfevent.Fields{B: rec.body[:len(rec.body)-size]}, perfevent.Fields{B: rec.body[len(rec.body)-size:]}
	id.U32()
	key := deferral{tid: int32(id.U32()), cookie: f.U64()}
	n := f.U64()
	if n > perfevent.MaxChain {
		return c.omit(c.file.errorf(rec.offset, "call chain longer than any kernel records"))
	}
	chain := f.Take(8 * n)
	if f.Short || id.Short {
		return c.omit(c.file.errorf(rec.offset, "record of type %d cut short", rec.typ))
	}
	return c.deferrals.found(c, key, chain)
}
