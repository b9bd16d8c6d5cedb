package callframe

import (
	"cmp"
	"debug/elf"
	"fmt"
	"sort"

	"fulgur/internal/symbols/dwarfdata"
	"fulgur/internal/symbols/elffile"
)

// ehHeader is the start of .eh_frame_hdr (Linux Standard Base): a version, three encodings,
// a pointer to .eh_frame, and the number of entries in the binary search table that
// follows.
type ehHeader struct {
	segment elffile.Segment
	frames  uint64 // link-time virtual address of .eh_frame
	// table is the offset of the search table in the file, and entries the number of its
	// entries. If entries is 0, there is no table in a known encoding.
	table   int64
	entries uint64
}

// tableEncoding is the encoding of the search table that all linkers use: pairs of 4-byte
// offsets from the start of .eh_frame_hdr, to a function and to its FDE, sorted by function.
const (
	tableEncoding = peDataRel | peSdata4
	tableEntry    = 8
)

// openHeader reads the .eh_frame_hdr to which the program headers of f point. It returns nil
// if there is none.
func openHeader(f *elffile.File) (*ehHeader, error) {
	for _, seg := range f.Segments() {
		if seg.Type == elf.PT_GNU_EH_FRAME {
			return readHeader(f, seg)
		}
	}
	return nil, nil
}

func readHeader(f *elffile.File, seg elffile.Segment) (*ehHeader, error) {
	const limit = 4 + 8 + 8
	b, err := f.Bytes(int64(seg.Offset), min(seg.FileSize, limit), ".eh_frame_hdr")
	if err != nil {
		return nil, fmt.Errorf("read unwind information: %w", err)
	}
	r := dwarfdata.Reader{Data: b}
	version := r.U8()
	frames, count, table := r.U8(), r.U8(), r.U8()
	h := &ehHeader{segment: seg, frames: ReadPointer(&r, frames, uint8(f.WordSize()), seg.Addr, seg.Addr)}
	if version != 1 || r.Bad {
		return nil, f.Errorf(int64(seg.Offset), "unknown form of .eh_frame_hdr")
	}
	if count == peOmit || table != tableEncoding {
		return h, nil
	}
	entries := readEncoded(&r, count, uint8(f.WordSize()))
	if r.Bad || entries > (seg.FileSize-uint64(r.Pos))/tableEntry {
		return h, nil // a damaged table: .eh_frame itself may be usable
	}
	h.table, h.entries = int64(seg.Offset)+int64(r.Pos), entries
	return h, nil
}

// tableBlock is the number of entries of the search table to read at once.
const tableBlock = 512

// table is the binary search table of .eh_frame_hdr, read block by block. Keys are the
// starts of functions.
type table struct {
	*ehHeader
	section *Section
	cies    CIEs[*CIE]
	firsts  map[uint64]uint64 // first key by block
	block   uint64            // the number of the block in buf
	buf     []byte            // empty at first
}

// search finds the neighbors of addrs, which must be sorted. It does not trust the table:
// an FDE must begin at the address in its entry.
func (h *ehHeader) search(s *Section, addrs []uint64) ([]neighbors, error) {
	t := table{ehHeader: h, section: s, firsts: map[uint64]uint64{}}
	around := make([]neighbors, len(addrs))
	var damage error
	for i, addr := range addrs {
		n, err := t.around(addr)
		if err != nil && damage == nil {
			damage = err
		}
		around[i] = n
	}
	return around, damage
}

// around finds the neighbors of addr.
func (t *table) around(addr uint64) (neighbors, error) {
	var err error
	below := func(n uint64, key func(uint64) (uint64, error)) uint64 { // keys at or below addr
		return uint64(sort.Search(int(n), func(i int) bool {
			k, keyErr := key(uint64(i))
			err = cmp.Or(err, keyErr)
			return keyErr != nil || k > addr
		}))
	}
	blocks := (t.entries + tableBlock - 1) / tableBlock
	// The function is in the last block that begins at or below addr.
	n := below(blocks, t.first)
	if err != nil {
		return neighbors{}, err
	}
	if n == 0 {
		next, err := t.first(0)
		return neighbors{next: next}, err
	}
	if err := t.load(n - 1); err != nil {
		return neighbors{}, err
	}
	size := uint64(len(t.buf) / tableEntry)
	i := below(size, func(i uint64) (uint64, error) { return t.word(i * tableEntry), nil })
	var around neighbors
	switch {
	case i < size:
		around.next = t.word(i * tableEntry)
	case n < blocks:
		if around.next, err = t.first(n); err != nil {
			return around, err
		}
	}
	if i == 0 {
		return around, t.damaged(n - 1) // the block's first key has changed
	}
	start, at := t.word((i-1)*tableEntry), t.word((i-1)*tableEntry+4)
	f, err := t.section.fdeAt(at-t.section.addr, &t.cies)
	if err == nil && f.Start != start {
		err = t.damaged(n - 1)
	}
	if err == nil && t.section.real(f) {
		around.last = f
	}
	return around, err
}

func (t *table) damaged(block uint64) error {
	return t.section.file.Errorf(t.table+int64(block*tableBlock*tableEntry), ".eh_frame_hdr does not match .eh_frame")
}

// word returns the address in the block at an offset.
func (t *table) word(off uint64) uint64 {
	return t.address(t.buf[off:])
}

// address decodes an address of the table.
func (t *table) address(b []byte) uint64 {
	r := dwarfdata.Reader{Data: b}
	return ReadPointer(&r, tableEncoding, t.section.AddrSize, 0, t.segment.Addr)
}

// first returns the first key of a block.
func (t *table) first(block uint64) (uint64, error) {
	key, ok := t.firsts[block]
	if !ok {
		var b [4]byte
		if err := t.section.file.ReadFull(b[:], t.table+int64(block*tableBlock*tableEntry), ".eh_frame_hdr"); err != nil {
			return 0, err
		}
		key = t.address(b[:])
		t.firsts[block] = key
	}
	return key, nil
}

// load reads a block.
func (t *table) load(block uint64) error {
	if len(t.buf) > 0 && t.block == block {
		return nil
	}
	entries := min(tableBlock, t.entries-block*tableBlock)
	b, err := t.section.file.Bytes(t.table+int64(block*tableBlock*tableEntry), entries*tableEntry, ".eh_frame_hdr")
	if err != nil {
		return err
	}
	t.block, t.buf = block, b
	return nil
}

// fdeAt reads the addresses of the FDE at offset off.
func (s *Section) fdeAt(off uint64, cies *CIEs[*CIE]) (FDE, error) {
	const limit = 12 + 8 + 2*10 // length, ID, addresses
	if off >= s.Size {
		return FDE{}, s.Errorf(off, "no FDE there")
	}
	b := make([]byte, min(limit, s.Size-off))
	if err := s.fill(b, off); err != nil {
		return FDE{}, err
	}
	lengthSize, length, ok := header(b)
	if !ok {
		return FDE{}, s.Errorf(off, "no FDE there")
	}
	e, ok := s.entryBody(b[lengthSize:][:min(length, uint64(len(b))-lengthSize)], off, lengthSize)
	if !ok || e.IsCIE {
		return FDE{}, s.Errorf(off, "no FDE there")
	}
	c := cies.Get(s.CIE(&e), s.ReadCIE)
	if c.Err != nil {
		return FDE{}, c.Err
	}
	f, r := s.fdeRange(&e, c)
	if r.Bad {
		return FDE{}, s.Errorf(off, "FDE ends too early")
	}
	return f, nil
}
