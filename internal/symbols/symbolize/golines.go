package symbolize

import (
	"sort"
	"strings"
)

// maxPCValues bounds the runs in a function's table. The largest functions, generated
// initializers, have about 100 000.
const maxPCValues = 1 << 20

// pcValues maps the code of a function to values in runs. A run begins where the previous
// one ends; its end, exclusive, is relative to the function's entry.
type pcValues []pcRun

type pcRun struct {
	end   uint32
	value int32
}

// at returns the value at pc, relative to the function's entry, or -1 if there is none.
func (v pcValues) at(pc uint32) int32 {
	i := sort.Search(len(v), func(i int) bool { return v[i].end > pc })
	if i == len(v) {
		return -1
	}
	return v[i].value
}

// readValues appends the table at offset i of the values to v, for a function of size
// bytes. The table is a sequence of pairs: the change of the value, initially -1, in
// zigzag encoding, and the length of its run. A change of 0 ends the sequence unless it
// is the first (runtime/symtab.go: step). Offset 0 means no table.
func (t *goTable) readValues(v *pcValues, i, size uint32) error {
	if i == 0 {
		return nil
	}
	if _, err := t.part(t.values, uint64(i), 1, "Go pc-value table"); err != nil {
		return err
	}
	c := byteCursor{r: t.r, off: t.values.off + uint64(i), end: t.values.off + t.values.size}
	value, pc := int32(-1), uint64(0)
	for pc < uint64(size) {
		change, err := c.uvarint()
		if err != nil {
			return err
		}
		if change == 0 && len(*v) > 0 {
			return nil
		}
		length, err := c.uvarint()
		if err != nil {
			return err
		}
		value += int32(-(change & 1) ^ (change >> 1))
		pc += uint64(length) * uint64(t.quantum)
		if len(*v) == maxPCValues {
			return t.f.Errorf(int64(c.off), "Go pc-value table of more than %d runs", maxPCValues)
		}
		*v = append(*v, pcRun{uint32(min(pc, uint64(size))), value})
	}
	return nil
}

// byteCursor reads a sequence of bytes.
type byteCursor struct {
	r        *pageReader
	b        []byte // the bytes read so far
	next     int    // index in b
	off, end uint64 // the unread part of the sequence in the file
}

// uvarint returns the next varint: seven bits per byte, lowest first. As in the runtime,
// bits above 32 are dropped.
func (c *byteCursor) uvarint() (v uint32, err error) {
	for shift := 0; ; shift += 7 {
		if c.next == len(c.b) {
			if c.off >= c.end {
				return 0, c.r.f.Errorf(int64(c.off), "Go pc-value table without an end")
			}
			if c.b, err = c.r.Page(c.off); err != nil {
				return 0, err
			}
			c.b, c.next = c.b[:min(uint64(len(c.b)), c.end-c.off)], 0
			c.off += uint64(len(c.b))
		}
		b := c.b[c.next]
		c.next++
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
}

// position sets the file and line of f to those at pc of fn. They remain unknown if the
// table has none, as in the padding between functions.
func (t *goTable) position(f *Frame, fn *goFunction, pc uint32) error {
	file, line := fn.files.at(pc), fn.lines.at(pc)
	if file < 0 || line < 0 {
		return nil
	}
	const unknown = 1<<32 - 1
	off, err := t.part(t.units, 4*(uint64(fn.unit)+uint64(file)), 4, "Go file number")
	if err != nil {
		return err
	}
	i, err := t.r.uint32(off, "Go file number")
	if err != nil || i == unknown {
		return err
	}
	path, ok := t.paths[i]
	if !ok {
		b, err := t.r.cstring(t.files, uint64(i), "Go file name")
		if err != nil {
			return err
		}
		if t.pathBytes += uint64(len(b)); t.pathBytes > t.files.size {
			return t.f.Errorf(int64(t.files.off), "Go file names that overlap")
		}
		path = strings.ToValidUTF8(string(b), "\uFFFD")
		t.paths[i] = path
	}
	f.File, f.Line = path, int(line)
	return nil
}
