package callframe

import (
	"debug/elf"
	"fmt"

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
	// entries. There is no table in an encoding that is known if entries is 0.
	table   int64
	entries uint64
}

// tableEncoding is how all linkers encode the search table: pairs of offsets of four bytes
// from the start of .eh_frame_hdr, one of a function and one of its FDE, sorted by function.
const (
	tableEncoding = peDataRel | peSdata4
	tableEntry    = 8
)

// openHeader reads the .eh_frame_hdr that the program headers of f lead to. It returns nil
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
	const most = 4 + 8 + 8
	b, err := f.Bytes(int64(seg.Offset), min(seg.FileSize, most), ".eh_frame_hdr")
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
		return h, nil // a table that is damaged: .eh_frame itself may still be used
	}
	h.table, h.entries = int64(seg.Offset)+int64(r.Pos), entries
	return h, nil
}
