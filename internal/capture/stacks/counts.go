package stacks

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/rcu"
)

// Key is what counts are kept for, in every family of probes; each uses the
// fields that it needs and leaves the others 0.
type Key struct {
	// Source is the index of the source in its run.
	Source uint8
	// ID names a stack, or its user half where the halves are named apart;
	// Kernel is then the other.
	ID, Kernel uint64
	// Waker names the stack of who ended a wait.
	Waker uint64
	// File names what the sample has to do with beside its stack; see
	// [Store.Files].
	File uint64
	// Cgroup is the inode number of a control group that has to do with it.
	Cgroup uint64
	// TID and CPU are the thread and the CPU where those are told apart.
	TID, CPU uint32
	// Detail is what else the source tells apart.
	Detail uint64
}

// MaxValues is how many values a source counts at most.
const MaxValues = 5

// Values are what a source counts for a key: first how many samples there were, then
// sums that the source gives their meaning.
type Values [MaxValues]uint64

// Samples returns the number of samples.
func (v Values) Samples() uint64 { return v[0] }

// Add adds w to v.
func (v *Values) Add(w Values) {
	for i, n := range w {
		v[i] += n
	}
}

// Counts are the two count maps of a probe and the sum of what was drained
// from them. Programs write one map while the other is drained; see
// bpf/count.h for why.
type Counts struct {
	maps     [2]*ebpf.Map
	active   *ebpf.Variable
	inserted *ebpf.Variable
	drained  [2]uint64 // insertions up to each map's last drain
	current  int
	rows     rows
	total    map[Key]Values
}

// Maps are the parts of bpf/count.h in a loaded collection.
type Maps struct {
	First, Second    *ebpf.Map
	Active, Inserted *ebpf.Variable
}

// NewCounts returns the counts of a loaded probe, whose maps have keys and values
// of the types K and V; convert makes what they stand for of them.
func NewCounts[K, V any](m Maps, convert func(K, V) (Key, Values)) *Counts {
	return &Counts{
		maps:     [2]*ebpf.Map{m.First, m.Second},
		active:   m.Active,
		inserted: m.Inserted,
		rows:     &rowsOf[K, V]{keys: make([]K, drainBatch), values: make([]V, drainBatch), convert: convert},
		total:    map[Key]Values{},
	}
}

// Total returns what has been drained and added and not been taken from the
// map by [Store.Count] since. The map stays Counts' own.
func (c *Counts) Total() map[Key]Values { return c.total }

// AddRecord adds a count that came through the ring on its own, as an event
// record.
func (c *Counts) AddRecord(record []byte) error {
	k, v, err := c.rows.parse(record)
	if err != nil {
		return err
	}
	c.Add(k, v)
	return nil
}

// Take returns what [Counts.Total] does, and begins anew.
func (c *Counts) Take() map[Key]Values {
	total := c.total
	c.total = map[Key]Values{}
	return total
}

// Add adds a count that did not come from the maps.
func (c *Counts) Add(k Key, v Values) {
	sum := c.total[k]
	sum.Add(v)
	c.total[k] = sum
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
		n, err := c.rows.take(c.maps[i], &cursor)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if errors.Is(err, unix.ENOSPC) && c.rows.grow(int(c.maps[i].MaxEntries())) {
			continue // a hash bucket is returned whole or not at all
		}
		if err != nil && !end {
			return fmt.Errorf("drain a count map: %w", err)
		}
		for j := range n {
			c.Add(c.rows.at(j))
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
