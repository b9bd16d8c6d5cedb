package bolt

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// key identifies a trace. Addresses are offsets in the binary (see Binary.offset).
type key struct {
	// binary is twice the binary's ID, plus 1 if the trace comes from a suspected duplicate
	// (see [Duplicates]). It is never 0.
	binary        uint32
	from, to, end uint32
}

// record is a key and its counts.
type record struct {
	key
	count, mispredicted uint32
}

// recordSize is the size of a record in memory and on disk, in bytes.
const recordSize = 24

// compareKeys orders keys by binary, from, to and end. A trace from suspected duplicates
// comes right after the same trace from other records.
func compareKeys(a, b record) int {
	return cmp.Or(
		cmp.Compare(a.binary>>1, b.binary>>1),
		cmp.Compare(a.from, b.from),
		cmp.Compare(a.to, b.to),
		cmp.Compare(a.end, b.end),
		cmp.Compare(a.binary, b.binary),
	)
}

// add adds the counts to r. If they do not fit, it reports false and leaves r unchanged.
func (r *record) add(count, mispredicted uint32) bool {
	if count > math.MaxUint32-r.count {
		return false
	}
	r.count += count
	r.mispredicted += mispredicted // never more than count
	return true
}

// table counts records in an open-addressing hash table with linear probing. It grows up to
// its limit and must then be emptied.
type table struct {
	slots []record // a power of two; binary 0 marks a free slot
	used  int
	limit int // maximum number of slots
}

// Sizes of a table, in slots.
const (
	minSlots = 1 << 10
	maxSlots = 1 << 30
)

// newTable returns a table that uses up to budget bytes.
func newTable(budget int) *table {
	limit := minSlots
	for limit < maxSlots && 2*limit*recordSize <= budget {
		limit *= 2
	}
	return &table{slots: make([]record, minSlots), limit: limit}
}

// hash mixes all bits of k into all bits of the result.
func (k key) hash() uint64 {
	const p, q = 0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f
	hi, lo := bits.Mul64((uint64(k.from)<<32|uint64(k.to))^p, (uint64(k.end)<<32|uint64(k.binary))^q)
	hi, lo = bits.Mul64(hi^lo, p)
	return hi ^ lo
}

// add counts a record. It reports false if the table or the count of this key is full.
// The table must be emptied then.
func (t *table) add(k key, count, mispredicted uint32) bool {
	mask := uint64(len(t.slots) - 1)
	for i := k.hash() & mask; ; i = (i + 1) & mask {
		slot := &t.slots[i]
		if slot.key == k {
			return slot.add(count, mispredicted)
		}
		if slot.binary != 0 {
			continue
		}
		if t.used >= len(t.slots)/4*3 {
			return t.grow() && t.add(k, count, mispredicted)
		}
		*slot = record{k, count, mispredicted}
		t.used++
		return true
	}
}

// grow doubles the table. It reports false if the limit is reached.
func (t *table) grow() bool {
	if len(t.slots) >= t.limit {
		return false
	}
	old := t.slots
	t.slots = make([]record, 2*len(old))
	mask := uint64(len(t.slots) - 1)
	for _, r := range old {
		if r.binary == 0 {
			continue
		}
		i := r.hash() & mask
		for t.slots[i].binary != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = r
	}
	return true
}

// sorted returns the records in order. They share the table's memory, so reset the table
// before using it again.
func (t *table) sorted() []record {
	n := 0
	for _, r := range t.slots {
		if r.binary != 0 {
			t.slots[n] = r
			n++
		}
	}
	clear(t.slots[n:])
	slices.SortFunc(t.slots[:n], compareKeys)
	return t.slots[:n]
}

// reset empties the table but keeps its memory.
func (t *table) reset() {
	clear(t.slots)
	t.used = 0
}
