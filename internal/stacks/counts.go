package stacks

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/bpf"
	"fulgur/internal/rcu"
)

// Key is what counts are kept for: a stack's id, and the thread and CPU where
// those are told apart.
type Key = bpf.OnCPUCountKey

// Value is a number of samples and the sum of their periods.
type Value = bpf.OnCPUCountValue

// Counts are the two count maps of a probe and the sum of what was drained
// from them. Programs write one map while the other is drained; see
// bpf/count.h for why.
type Counts struct {
	maps     [2]*ebpf.Map
	active   *ebpf.Variable
	inserted *ebpf.Variable
	drained  [2]uint64 // insertions up to each map's last drain
	current  int
	keys     []Key
	values   []Value
	total    map[Key]Value
}

// drainBatch is how many entries one system call reads; its buffers stay.
const drainBatch = 1024

// NewCounts returns the counts of the maps, active index and insertion
// counters of a loaded probe.
func NewCounts(first, second *ebpf.Map, active, inserted *ebpf.Variable) *Counts {
	return &Counts{
		maps:     [2]*ebpf.Map{first, second},
		active:   active,
		inserted: inserted,
		keys:     make([]Key, drainBatch),
		values:   make([]Value, drainBatch),
		total:    map[Key]Value{},
	}
}

// Total returns what has been drained and added and not been taken from the
// map by [Store.Count] since. The map stays Counts' own.
func (c *Counts) Total() map[Key]Value { return c.total }

// Add adds a sample that came through the ring.
func (c *Counts) Add(k Key, weight uint64) {
	v := c.total[k]
	v.Samples++
	v.Weight += weight
	c.total[k] = v
}

// NearlyFull reports whether the active map is at least 70 % full.
func (c *Counts) NearlyFull() (bool, error) {
	var inserted [2]uint64
	if err := c.inserted.Get(&inserted); err != nil {
		return false, fmt.Errorf("read the number of counted stacks: %w", err)
	}
	filled := inserted[c.current] - c.drained[c.current]
	return filled >= uint64(c.maps[0].MaxEntries())*7/10, nil
}

// Flip makes the other map the active one, waits for programs that may still
// write the old one, and drains it. The other map is empty before, because
// every flip leaves the map it drained empty.
func (c *Counts) Flip() error {
	old := c.current
	c.current = 1 - old
	if err := c.active.Set(uint32(c.current)); err != nil {
		return fmt.Errorf("flip the count maps: %w", err)
	}
	if err := rcu.Wait(); err != nil {
		return err
	}
	return c.drain(old)
}

// Finish drains both maps. Programs must not run any more.
func (c *Counts) Finish() error {
	return errors.Join(c.drain(0), c.drain(1))
}

// drain moves all entries of map i, which nothing writes, to the total.
func (c *Counts) drain(i int) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := c.maps[i].BatchLookupAndDelete(&cursor, c.keys, c.values, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if errors.Is(err, unix.ENOSPC) && len(c.keys) < int(c.maps[i].MaxEntries()) {
			// A hash bucket is returned whole or not at all.
			c.keys, c.values = make([]Key, 2*len(c.keys)), make([]Value, 2*len(c.values))
			continue
		}
		if err != nil && !end {
			return fmt.Errorf("drain a count map: %w", err)
		}
		for j, k := range c.keys[:n] {
			v := c.total[k]
			v.Samples += c.values[j].Samples
			v.Weight += c.values[j].Weight
			c.total[k] = v
		}
		if end {
			break
		}
	}
	var inserted [2]uint64
	if err := c.inserted.Get(&inserted); err != nil {
		return fmt.Errorf("read the number of counted stacks: %w", err)
	}
	c.drained[i] = inserted[i]
	return nil
}
