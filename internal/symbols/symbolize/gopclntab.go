package symbolize

import (
	"encoding/binary"
	"errors"
	"sort"

	"fulgur/internal/symbols/elffile"
)

// Go's function table, .gopclntab, as read by the runtime of Go 1.18 and newer
// (runtime/symtab.go: pcHeader, moduledata; runtime/runtime2.go: _func). It survives
// strip and -ldflags="-s -w", is sorted, and covers exactly the code laid out by the Go
// linker. C code is left to the symbol tables.
//
// The table has the name and first line of each function and, by ranges of code, the
// file, the line and the inlined function.

// The magic numbers of the table, with the version that introduced each.
const (
	goMagic118 = 0xfffffff0
	goMagic120 = 0xfffffff1
)

// goTable is an open pclntab. It is not safe for concurrent use.
type goTable struct {
	f       *elffile.File
	r       *pageReader
	layout  *goLayout
	addr    uint64 // of the table in memory
	off     uint64 // of the table in the file
	num     uint64 // number of functions
	quantum uint32 // in bytes; all pc differences are multiples of it

	// The parts of the table. Offsets in one part never lead to another.
	names, units, files, values, funcs span

	// From the module data: the address to which all others are relative, and the address
	// of the inlined calls, or 0 if not found.
	text, gofunc uint64

	// Caches of names and files by offset, and their total size. Names that do not overlap
	// cannot be larger than their table, but overlapping names could exhaust memory.
	shown                map[uint32]goName
	paths                map[uint32]string
	nameBytes, pathBytes uint64
}

// goLayout describes the differences between versions of the table.
type goLayout struct {
	// recordSize is the size of _func, and startLine the offset of that field, or 0 if
	// there is none.
	recordSize, startLine uint64
	// gofunc is the offset of that field in moduledata, in words.
	gofunc int
	// callSize is the size of inlinedCall. callName, callParent and callStart are the
	// offsets of nameOff (formerly func_), parentPc and startLine; callStart is 0 if
	// there is none.
	callSize, callName, callParent, callStart uint64
}

// goLayouts maps magic numbers to the known versions.
var goLayouts = map[uint32]*goLayout{
	goMagic118: {recordSize: 40, gofunc: 38, callSize: 20, callName: 12, callParent: 16},
	goMagic120: {recordSize: 44, startLine: 36, gofunc: 40, callSize: 16, callName: 4, callParent: 8, callStart: 12},
}

// lookupGo looks up addrs in Go's function table, if the file has one.
func (e *ELF) lookupGo(addrs []uint64, frames [][]Frame) error {
	s := goTableSection(e.file)
	if s == nil {
		return nil
	}
	t, err := openGoTable(e.file, s)
	if err != nil {
		return err
	}
	return t.lookup(addrs, frames)
}

// openGoTable reads the header of the table in s and finds its module data.
func openGoTable(f *elffile.File, s *elffile.Section) (*goTable, error) {
	const maxHeader = 8 + 8*8
	var header [maxHeader]byte
	used := 8 + 8*f.WordSize()
	if s.Size < uint64(used) {
		return nil, f.Errorf(int64(s.Offset), "truncated Go pclntab")
	}
	if err := f.ReadFull(header[:used], int64(s.Offset), "Go pclntab header"); err != nil {
		return nil, err
	}
	magic := binary.LittleEndian.Uint32(header[:])
	layout := goLayouts[magic]
	if layout == nil {
		return nil, f.Errorf(int64(s.Offset), "Go pclntab of an unknown version (magic %#x); Go 1.18 and newer are read", magic)
	}
	if ptr := int(header[7]); ptr != f.WordSize() {
		return nil, f.Errorf(int64(s.Offset), "Go pclntab with pointers of %d bytes", ptr)
	}
	word := func(i int) uint64 { return f.Word(header[8+i*f.WordSize():]) }
	t := &goTable{
		f: f, r: newPageReader(f), layout: layout, addr: s.Addr, off: s.Offset, num: word(0), quantum: uint32(header[6]),
		shown: map[uint32]goName{}, paths: map[uint32]string{},
	}
	// The parts follow each other in this order.
	for i, part := range []*span{&t.names, &t.units, &t.files, &t.values, &t.funcs} {
		start, end := word(3+i), s.Size
		if i < 4 {
			end = word(4 + i)
		}
		if start > end || end > s.Size {
			return nil, f.Errorf(int64(s.Offset), "Go pclntab whose parts lie outside of it")
		}
		*part = span{s.Offset + start, end - start}
	}
	if t.num >= t.funcs.size/8 {
		return nil, f.Errorf(int64(s.Offset), "Go pclntab with an index of %d functions outside of it", t.num)
	}
	if err := t.findModule(word(2)); err != nil {
		return nil, err
	}
	return t, nil
}

// entry returns the start of the i-th function relative to the text. Entry num is the end
// of the last function.
func (t *goTable) entry(i uint64) (uint32, error) {
	return t.r.uint32(t.funcs.off+8*i, "Go function index")
}

// find returns the function that contains pc, which is relative to the text and not before
// function low. Since addresses are sorted, it tries the functions right after low first. ok
// is false if pc is before the first function.
func (t *goTable) find(low uint64, pc uint32) (i uint64, ok bool, err error) {
	above := func(i uint64) bool {
		var start uint32
		if err == nil {
			start, err = t.entry(i)
		}
		return err != nil || start > pc
	}
	step := uint64(1)
	for low+step < t.num && !above(low+step) {
		low += step
		step *= 2
	}
	n := sort.Search(int(min(step, t.num-low)), func(i int) bool { return above(low + uint64(i)) })
	return low + uint64(n) - 1, n > 0, err
}

// lookup looks up sorted addrs. A malformed record affects only its own function.
func (t *goTable) lookup(addrs []uint64, frames [][]Frame) error {
	end, err := t.entry(t.num)
	if err != nil {
		return err
	}
	var faulty error
	var fn goFunction
	low := uint64(0) // no remaining address is in a function below low
	for i, addr := range addrs {
		if addr < t.text || addr-t.text >= uint64(end) {
			continue
		}
		pc := uint32(addr - t.text)
		if pc < fn.entry || pc >= fn.end {
			next, ok, err := t.find(low, pc)
			if err != nil {
				return errors.Join(faulty, err)
			}
			if !ok {
				continue
			}
			low = next
			if err := t.readFunction(&fn, low); err != nil {
				faulty = err
			}
		}
		if fn.off == 0 {
			continue // its record is malformed
		}
		if frames[i], err = t.frames(&fn, pc-fn.entry); err != nil {
			faulty = err
		}
	}
	return faulty
}

// goFunction is a function in the table. Code offsets are relative to its entry.
type goFunction struct {
	off        uint64 // of its record in the file; 0 if that is malformed
	entry, end uint32 // relative to the text
	name       uint32 // offset in the names
	startLine  int    // 0 if unknown
	unit       uint32 // first of its files' entries in the unit table

	files, lines, calls pcValues
	tree                uint64 // address of the inlined calls to which calls refers
}

// Offsets of fields of _func, in bytes.
const nameField, fileField, lineField, pcdataField, unitField = 4, 20, 24, 28, 32

// goRecord is the record of a function, _func.
type goRecord []byte

func (r goRecord) field(at uint64) uint32 { return binary.LittleEndian.Uint32(r[at:]) }

// readFunction reads function i and its tables into fn, whose memory it reuses.
func (t *goTable) readFunction(fn *goFunction, i uint64) error {
	record, off, err := t.readRecord(fn, i)
	if err != nil {
		return err
	}
	size := fn.end - fn.entry
	if err := t.readValues(&fn.files, record.field(fileField), size); err != nil {
		return err
	}
	if err := t.readValues(&fn.lines, record.field(lineField), size); err != nil {
		return err
	}
	if err := t.readInlined(fn, record, off); err != nil {
		return err
	}
	fn.off = off
	return nil
}

// readRecord reads function i without its tables into fn, whose memory it reuses. It returns the record and
// its offset in the file.
func (t *goTable) readRecord(fn *goFunction, i uint64) (record goRecord, off uint64, err error) {
	*fn = goFunction{files: fn.files[:0], lines: fn.lines[:0], calls: fn.calls[:0]}
	if fn.entry, err = t.entry(i); err != nil {
		return nil, 0, err
	}
	if fn.end, err = t.entry(i + 1); err != nil {
		return nil, 0, err
	}
	if fn.end < fn.entry {
		return nil, 0, t.f.Errorf(int64(t.funcs.off+8*i), "Go function index that is not sorted")
	}
	start, err := t.r.uint32(t.funcs.off+8*i+4, "Go function index")
	if err != nil {
		return nil, 0, err
	}
	if off, err = t.part(t.funcs, uint64(start), t.layout.recordSize, "Go function"); err != nil {
		return nil, 0, err
	}
	if record, err = t.r.read(off, t.layout.recordSize, "Go function"); err != nil {
		return nil, 0, err
	}
	fn.name, fn.unit = record.field(nameField), record.field(unitField)
	if t.layout.startLine != 0 {
		fn.startLine = int(int32(record.field(t.layout.startLine)))
	}
	return record, off, nil
}

// readInlined finds the inlined calls of fn, whose record is at off.
func (t *goTable) readInlined(fn *goFunction, record goRecord, off uint64) error {
	numFuncData := record[t.layout.recordSize-1]
	return t.readInlineTree(fn, off+t.layout.recordSize, record.field(pcdataField), numFuncData)
}

// part returns the file offset of n bytes at offset i of a part of the table.
func (t *goTable) part(s span, i, n uint64, what string) (uint64, error) {
	if !s.has(i, n) {
		return 0, t.f.Errorf(int64(s.off), "%s at %#x of a table of %#x bytes", what, i, s.size)
	}
	return s.off + i, nil
}
