package bolt

import (
	"fmt"
	"iter"
)

// Duplicates says what to do about the newest entry of a branch stack when it
// repeats the one before it. On Skylake servers that happens in a quarter of
// all samples, when no such branch was taken twice; elsewhere it is a loop of
// one branch.
type Duplicates int

const (
	// DetectDuplicates leaves them out if they are far more frequent than
	// equal neighbours are elsewhere in the stacks.
	DetectDuplicates Duplicates = iota
	// KeepDuplicates takes them as they are, as perf2bolt does.
	KeepDuplicates
	// DropDuplicates leaves them out.
	DropDuplicates
)

// Options are how a [Collector] works. The zero value is a good choice.
type Options struct {
	// Strict leaves out fall-throughs across entries of the kernel. perf2bolt
	// removes such entries and takes what is before and after them for
	// neighbours, although the code may have gone elsewhere in between.
	Strict bool
	// Duplicates says what to do about repeated newest entries.
	Duplicates Duplicates
	// Memory is what the table of traces may take, in bytes; more goes to
	// temporary files. 0 stands for DefaultMemory. While the table grows,
	// half as much again is in use.
	Memory int
}

// DefaultMemory is the memory that a table of traces takes at most if nothing
// else is asked for: room for 1.5 million different ones.
const DefaultMemory = 48 << 20

// What the samples must show for the newest entry to be taken for a duplicate
// (DetectDuplicates). On Skylake servers the share is 23 to 26 % against 0.3 %
// of equal neighbours elsewhere; where loops of one branch are hot, the two
// are alike.
const (
	duplicateShare = 0.05
	duplicateRatio = 10
)

// Collector cuts samples into traces and counts them, for each registered
// binary apart. It is not safe for concurrent use.
type Collector struct {
	opts     Options
	binaries []*Binary
	counter  *counter
	stats    Stats

	repeats repeats
}

// repeats is the statistic that DetectDuplicates decides by.
type repeats struct {
	newest, newestPairs uint64 // the two newest entries of a sample
	others, otherPairs  uint64 // all other neighbours
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

// Register has the branches of b counted. What is not registered is foreign
// code. Registering a binary again does nothing.
func (c *Collector) Register(b *Binary) {
	if b.id == 0 {
		c.binaries = append(c.binaries, b)
		b.id = uint32(len(c.binaries))
	}
}

// Binaries returns the registered binaries in the order of registration.
func (c *Collector) Binaries() []*Binary { return c.binaries }

// place is an address resolved: an offset in a binary, both zero for foreign
// code.
type place struct {
	binary *Binary
	offset uint32
}

// Add counts the branch stack of one sample, the newest entry first, of a
// process that has mapped its binaries as layout says. The collector keeps
// nothing of the two. An error comes from a temporary file.
//
// The newest entry has no fall-through: where the code went after it is not
// known. Entries of the kernel are removed and their neighbours stitched
// together (but see [Options.Strict]), as are branches on a wrong path, which
// the code never took. Empty entries, aborted transactions and foreign code
// interrupt the chain.
func (c *Collector) Add(layout Layout, entries []Entry) error {
	c.stats.Samples++
	c.stats.Records += uint64(len(entries))
	c.repeats.count(entries)
	var (
		newer place // where the next branch in time was taken, if known
		hint  *Region
	)
	for i, e := range entries {
		switch {
		case e.empty():
			c.stats.Empty++
			newer = place{}
			continue
		case e.kernel():
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

// AddAddress counts samples without branch records, all of code at address
// addr. A Collector is used for these or for branches, not both.
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

// locate resolves addr. hint is where an address nearby was found, or nil.
func locate(layout Layout, addr uint64, hint *Region) (place, *Region) {
	r := layout.find(addr, hint)
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

// count adds a branch and the fall-through from its target to newer, for the
// binaries that it left and entered.
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

// dropDuplicates reports whether repeated newest entries are to be left out.
func (c *Collector) dropDuplicates() bool {
	if c.opts.Duplicates != DetectDuplicates {
		return c.opts.Duplicates == DropDuplicates
	}
	newest := share(c.repeats.newest, c.repeats.newestPairs)
	return newest >= duplicateShare && newest >= duplicateRatio*share(c.repeats.others, c.repeats.otherPairs)
}

// Stats returns what was counted so far.
func (c *Collector) Stats() Stats {
	s := c.stats
	s.DuplicateShare = share(c.repeats.newest, c.repeats.newestPairs)
	s.EqualShare = share(c.repeats.others, c.repeats.otherPairs)
	if c.dropDuplicates() {
		s.Duplicate = c.repeats.newest
	}
	return s
}

// Trace is a taken branch, the straight-line code after it, and how often both
// were seen. Addresses are link-time virtual addresses, 0 for foreign code.
type Trace struct {
	// From is the address of the branch, To that of its target.
	From, To uint64
	// End is the address of the next branch, up to which the code ran
	// straight on from To. It is 0 if that is not known.
	End uint64
	// Count is how often the trace was seen, Mispredicted how often its
	// branch was mispredicted.
	Count, Mispredicted uint64
}

// Each calls yield for every registered binary, in the order of registration,
// with the binary's traces sorted by From, To and End, each once. It ends with
// the first error of yield. Nothing can be added afterwards.
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
		traces(func(Trace, error) bool { return true }) // what yield left
	}
	if g.err != nil {
		return fmt.Errorf("counting traces: %w", g.err)
	}
	return nil
}

// grouper makes traces of sorted records.
type grouper struct {
	next func() (record, error, bool)
	drop bool // what comes from duplicates

	head record
	ok   bool // head is valid
	err  error
}

// advance reads the next record that counts.
func (g *grouper) advance() {
	for {
		g.head, g.err, g.ok = g.next()
		g.ok = g.ok && g.err == nil
		if !g.ok || !g.drop || g.head.binary&1 == 0 {
			return
		}
	}
}

// traces yields the traces of b, or those of them that were not read yet.
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
