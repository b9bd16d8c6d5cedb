package bolt

import (
	"fmt"
	"iter"
)

// Duplicates selects how to handle a newest entry of a branch stack that repeats the one
// before it. On Skylake servers, a quarter of all samples have such duplicates of a branch
// that was taken only once. On other machines, a repetition is a loop with a single branch.
type Duplicates int

const (
	// DetectDuplicates drops repeated newest entries if they are far more frequent than equal
	// neighbors elsewhere in the stacks.
	DetectDuplicates Duplicates = iota
	// KeepDuplicates keeps them, as perf2bolt does.
	KeepDuplicates
	// DropDuplicates drops them.
	DropDuplicates
)

// Options configures a [Collector]. The zero value selects good defaults.
type Options struct {
	// Strict drops fall-throughs across kernel entries. perf2bolt removes such entries
	// and treats the entries around them as neighbors, although other code may have run
	// in between.
	Strict bool
	// ForeignKernel treats the kernel as foreign code instead of removing its entries:
	// code that runs after the kernel returns counts, and no fall-through crosses it.
	ForeignKernel bool
	// Duplicates selects the handling of repeated newest entries.
	Duplicates Duplicates
	// Memory bounds the table of traces, in bytes; the rest goes to temporary files. 0 means
	// DefaultMemory. While the table grows, it needs half as much memory in addition.
	Memory int
}

// DefaultMemory is the default memory limit of a table of traces, in bytes: room for 1.5
// million distinct traces.
const DefaultMemory = 48 << 20

// Thresholds above which DetectDuplicates assumes that newest entries are duplicates. On
// Skylake servers, 23 to 26 % of the newest entries repeat the one before, but only 0.3 % of
// the others do. In a program with hot single-branch loops, the two shares are similar.
const (
	duplicateShare = 0.05
	duplicateRatio = 10
)

// Collector splits samples into traces and counts them for each registered binary. It is
// not safe for concurrent use.
type Collector struct {
	opts     Options
	binaries []*Binary
	counter  *counter
	stats    Stats

	repeats repeats
}

// repeats is the statistic used by DetectDuplicates.
type repeats struct {
	newest, newestPairs uint64 // the two newest entries of a sample
	others, otherPairs  uint64 // all other neighbors
}

// NewCollector returns an empty Collector. [Collector.Close] releases it.
func NewCollector(opts Options) *Collector {
	if opts.Memory <= 0 {
		opts.Memory = DefaultMemory
	}
	return &Collector{opts: opts, counter: newCounter(opts.Memory)}
}

// Close removes the temporary files.
func (c *Collector) Close() { c.counter.close() }

// Register makes the collector count the branches of b. Code of other binaries is
// foreign. Registering a binary again has no effect.
func (c *Collector) Register(b *Binary) {
	if b.id == 0 {
		c.binaries = append(c.binaries, b)
		b.id = uint32(len(c.binaries))
	}
}

// Binaries returns the registered binaries in the order of registration.
func (c *Collector) Binaries() []*Binary { return c.binaries }

// place is a resolved address: an offset in a binary. Both are zero for foreign code.
type place struct {
	binary *Binary
	offset uint32
}

// Add counts the branch stack of a sample, newest entry first, from a process with the
// given layout. It does not retain its arguments. Errors come from temporary files.
//
// The newest entry has no fall-through, because the code executed after it is unknown. Kernel
// entries are removed and their neighbors joined (but see [Options.Strict]). So are branches
// on a mispredicted path, which never took effect. Empty entries, aborted transactions and
// foreign code break the chain.
func (c *Collector) Add(layout Layout, entries []Entry) error {
	c.stats.Samples++
	c.stats.Records += uint64(len(entries))
	c.repeats.count(entries)
	var (
		newer place // the source of the next branch in time, if known
		hint  *Region
	)
	for i, e := range entries {
		switch {
		case e.empty():
			c.stats.Empty++
			newer = place{}
			continue
		case e.kernel() && !c.opts.ForeignKernel:
			c.stats.Kernel++
			if c.opts.Strict {
				newer = place{}
			}
			continue
		case e.wrongPath():
			c.stats.WrongPath++
			continue
		case e.aborted():
			c.stats.Aborted++
			newer = place{}
			continue
		}
		var from, to place
		to, hint = locate(layout, e.To, hint)
		from, hint = locate(layout, e.From, hint)
		suspect := i == 1 && e.repeats(entries[0])
		if err := c.count(e, from, to, newer, suspect); err != nil {
			return err
		}
		newer = from
	}
	return nil
}

// AddAddress counts samples without branch records at address addr. A Collector counts either
// such samples or branches, not both.
func (c *Collector) AddAddress(layout Layout, addr, samples uint64) error {
	c.stats.Samples += samples
	at, _ := locate(layout, addr, nil)
	if at.binary == nil {
		c.stats.Foreign += samples
		return nil
	}
	c.stats.Inside += samples
	at.binary.stats.Samples += samples
	return c.counter.addMany(key{binary: at.binary.id << 1, from: at.offset}, samples)
}

// AddTrace adds t.Count occurrences of an estimated trace of b, which must be registered. For
// recorded branches, use [Collector.Add].
func (c *Collector) AddTrace(b *Binary, t Trace) error {
	c.stats.Estimated = true
	c.stats.Records += t.Count
	c.stats.Inside += t.Count
	b.stats.Branches += t.Count
	if t.From != 0 {
		b.stats.Taken += t.Count
	}
	return c.counter.addMany(key{binary: b.id << 1, from: b.offset(t.From), to: b.offset(t.To), end: b.offset(t.End)}, t.Count)
}

// AddSamples counts the samples from which the traces passed to AddTrace were estimated.
func (c *Collector) AddSamples(n uint64) { c.stats.Samples += n }

// locate resolves addr. hint is the region of a nearby address, or nil.
func locate(layout Layout, addr uint64, hint *Region) (place, *Region) {
	r := find(layout, addr, hint)
	if r == nil {
		return place{}, hint
	}
	if r.Binary.id == 0 {
		return place{}, r
	}
	if offset := r.Binary.offset(addr - r.bias); offset != 0 {
		return place{r.Binary, offset}, r
	}
	return place{}, r
}

// count adds a branch and the fall-through from its target to newer, for the binaries of
// both ends.
func (c *Collector) count(e Entry, from, to, newer place, suspect bool) error {
	if from.binary == nil && to.binary == nil {
		c.stats.Foreign++
		return nil
	}
	c.stats.Inside++
	var mispredicted uint32
	if e.mispredicted() {
		mispredicted = 1
		c.stats.Mispredicted++
	}
	if from.binary != nil {
		from.binary.stats.Taken++
	}
	if to.binary != nil {
		k := key{binary: to.binary.id, to: to.offset}
		if from.binary == to.binary {
			k.from = from.offset
		}
		if newer.binary == to.binary {
			k.end = newer.offset
		}
		if err := c.put(to.binary, k, mispredicted, suspect); err != nil {
			return err
		}
	}
	if from.binary != nil && from.binary != to.binary {
		return c.put(from.binary, key{binary: from.binary.id, from: from.offset}, mispredicted, suspect)
	}
	return nil
}

func (c *Collector) put(b *Binary, k key, mispredicted uint32, suspect bool) error {
	b.stats.Branches++
	b.stats.Mispredicted += uint64(mispredicted)
	k.binary <<= 1
	if suspect {
		k.binary |= 1
	}
	return c.counter.add(k, 1, mispredicted)
}

func (r *repeats) count(entries []Entry) {
	for i := 1; i < len(entries); i++ {
		if entries[i].empty() {
			return
		}
		equal := uint64(0)
		if entries[i].repeats(entries[i-1]) {
			equal = 1
		}
		if i == 1 {
			r.newestPairs++
			r.newest += equal
		} else {
			r.otherPairs++
			r.others += equal
		}
	}
}

// dropDuplicates reports whether to drop repeated newest entries.
func (c *Collector) dropDuplicates() bool {
	if c.opts.Duplicates != DetectDuplicates {
		return c.opts.Duplicates == DropDuplicates
	}
	newest := share(c.repeats.newest, c.repeats.newestPairs)
	return newest >= duplicateShare && newest >= duplicateRatio*share(c.repeats.others, c.repeats.otherPairs)
}

// Stats returns the statistics so far.
func (c *Collector) Stats() Stats {
	s := c.stats
	if c.dropDuplicates() {
		s.Duplicate = c.repeats.newest
	}
	return s
}

// Trace is a taken branch and the straight-line code after it, with counts. Addresses are
// link-time virtual addresses, or 0 for foreign code.
type Trace struct {
	// From is the address of the branch, and To the address of its target.
	From, To uint64
	// End is the address of the next branch: the code from To to End ran without a branch. It
	// is 0 if unknown.
	End uint64
	// Count is the number of occurrences, and Mispredicted the number of occurrences with a
	// mispredicted branch.
	Count, Mispredicted uint64
}

// Each calls yield for every registered binary, in order of registration, with the binary's
// distinct traces sorted by From, To and End. It stops at the first error of yield. Do not
// add anything afterwards.
func (c *Collector) Each(yield func(b *Binary, traces iter.Seq2[Trace, error]) error) error {
	next, stop := iter.Pull2(c.counter.records())
	defer stop()
	g := &grouper{next: next, drop: c.dropDuplicates()}
	g.advance()
	for _, b := range c.binaries {
		b.stats.Traces, b.stats.Once = 0, 0
		traces := g.traces(b)
		if err := yield(b, traces); err != nil {
			return err
		}
		traces(func(Trace, error) bool { return true }) // skip the traces that yield did not read
	}
	if g.err != nil {
		return fmt.Errorf("counting traces: %w", g.err)
	}
	return nil
}

// grouper combines sorted records into traces.
type grouper struct {
	next func() (record, error, bool)
	drop bool // drop records from duplicates

	head record
	ok   bool // head is valid
	err  error
}

// advance reads the next record that is not dropped.
func (g *grouper) advance() {
	for {
		g.head, g.err, g.ok = g.next()
		g.ok = g.ok && g.err == nil
		if !g.ok || !g.drop || g.head.binary&1 == 0 {
			return
		}
	}
}

// traces yields the remaining traces of b.
func (g *grouper) traces(b *Binary) iter.Seq2[Trace, error] {
	return func(yield func(Trace, error) bool) {
		for g.ok && g.head.binary>>1 == b.id {
			k := g.head.key
			t := Trace{From: b.address(k.from), To: b.address(k.to), End: b.address(k.end)}
			for ; g.ok && g.head.binary>>1 == b.id && g.head.from == k.from && g.head.to == k.to && g.head.end == k.end; g.advance() {
				t.Count += uint64(g.head.count)
				t.Mispredicted += uint64(g.head.mispredicted)
			}
			b.stats.Traces++
			if t.Count == 1 {
				b.stats.Once++
			}
			if !yield(t, nil) {
				return
			}
		}
		if g.err != nil {
			yield(Trace{}, g.err)
		}
	}
}
