package stacks

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/rcu"
)

// Key is the key of counts for every family of probes. Each family uses the fields
// that it needs and leaves the others 0.
type Key struct {
	// Source is the index of the source in its run.
	Source uint8
	// ID identifies a stack. If user and kernel stacks have separate IDs, ID is
	// the user stack's, and Kernel the kernel stack's.
	ID, Kernel uint64
	// Waker identifies the stack of a wait's waker.
	Waker uint64
	// File identifies a file related to the sample; see [Store.Files].
	File uint64
	// Cgroup is the inode number of a control group related to the sample.
	Cgroup uint64
	// TID and CPU are the thread and the CPU, if these are distinguished.
	TID, CPU uint32
	// Owner is the TID of the thread that held the lock when the wait began, if owners are
	// distinguished.
	Owner uint32
	// Detail holds other properties that the source distinguishes.
	Detail uint64
}

// MaxValues is the maximum number of values of a source.
const MaxValues = 5

// Values are the values that a source counts for a key: first the number of samples,
// then sums defined by the source.
type Values [MaxValues]uint64

// Samples returns the number of samples.
func (v Values) Samples() uint64 { return v[0] }

// Add adds w to v.
func (v *Values) Add(w Values) {
	for i, n := range w {
		v[i] += n
	}
}

// Counts manages the two count maps of a probe, and the sum of their drained
// entries. Programs write one map while the other is drained; see bpf/count.h for
// the reason.
type Counts struct {
	source   uint8 // as in Key
	maps     [2]*ebpf.Map
	active   *ebpf.Variable
	inserted *ebpf.Variable
	drained  [2]uint64 // insertions up to each map's last drain
	current  int
	rows     rows
	total    map[Key]Values
	next     map[Key]Values // see AddNext; nil if there are none
}

// Maps holds the parts of bpf/count.h in a loaded collection.
type Maps struct {
	First, Second    *ebpf.Map
	Active, Inserted *ebpf.Variable
}

// NewRecordedCounts returns the counts of a source without maps: all of its samples are in stack records.
func NewRecordedCounts(source uint8) *Counts {
	return &Counts{source: source, total: map[Key]Values{}}
}

// NewCounts returns the counts of a loaded probe. source is the index of the probe in its run. K and
// V are the types of the keys and values in its maps; convert decodes them, and need not set
// [Key.Source].
func NewCounts[K, V any](m Maps, source uint8, convert func(K, V) (Key, Values)) *Counts {
	return &Counts{
		source:   source,
		maps:     [2]*ebpf.Map{m.First, m.Second},
		active:   m.Active,
		inserted: m.Inserted,
		rows:     &rowsOf[K, V]{keys: make([]K, drainBatch), values: make([]V, drainBatch), source: source, convert: convert},
		total:    map[Key]Values{},
	}
}

// Total returns the counts that were drained or added, minus those that
// [Store.Count] has removed since. Counts keeps ownership of the map.
func (c *Counts) Total() map[Key]Values { return c.total }

// AddRecord adds a count from an event record, which came through the ring.
func (c *Counts) AddRecord(record []byte) error {
	k, v, err := c.rows.parse(record)
	if err != nil {
		return err
	}
	c.Add(k, v)
	return nil
}

// Take returns [Counts.Total], and begins a new total with the counts from [Counts.AddNext].
func (c *Counts) Take() map[Key]Values {
	total := c.total
	c.total, c.next = c.next, nil
	if c.total == nil {
		c.total = map[Key]Values{}
	}
	return total
}

// AddNext adds a count to the total that the next [Counts.Take] begins.
func (c *Counts) AddNext(k Key, v Values) {
	if c.next == nil {
		c.next = map[Key]Values{}
	}
	addTo(c.next, k, v)
}

// Add adds a count that did not come from the maps.
func (c *Counts) Add(k Key, v Values) { addTo(c.total, k, v) }

// addTo adds v to the sum for k.
func addTo[K comparable](sums map[K]Values, k K, v Values) {
	sum := sums[k]
	sum.Add(v)
	sums[k] = sum
}

// NearlyFull reports whether the active map is at least 70 % full.
func (c *Counts) NearlyFull() (bool, error) {
	if c.inserted == nil {
		return false, nil
	}
	var inserted [2]uint64
	if err := c.inserted.Get(&inserted); err != nil {
		return false, fmt.Errorf("read the number of counted stacks: %w", err)
	}
	filled := inserted[c.current] - c.drained[c.current]
	return filled >= uint64(c.maps[0].MaxEntries())*7/10, nil
}

// Flip activates the other map, waits for programs that may still write to the old
// one, and drains the old one. The other map is empty, because every flip empties
// the old map.
func (c *Counts) Flip() error {
	if c.inserted == nil {
		return nil
	}
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

// Finish drains both maps. No programs may run any more.
func (c *Counts) Finish() error {
	if c.inserted == nil {
		return nil
	}
	return errors.Join(c.drain(0), c.drain(1))
}

// drain moves all entries of map i, which no program writes to, to the total.
func (c *Counts) drain(i int) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := c.rows.take(c.maps[i], &cursor)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if errors.Is(err, unix.ENOSPC) && c.rows.grow(int(c.maps[i].MaxEntries())) {
			continue // the kernel returns a hash bucket completely or not at all
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
