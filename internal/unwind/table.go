package unwind

import "sort"

const (
	// BlockShift is the binary logarithm of the block size in bytes. A table has an index
	// of the rows of each block. With 1 KiB, a search takes few steps and the index costs
	// 0.4 % of the code.
	BlockShift = 10

	blockSize = 1 << BlockShift
	ruleBits  = 32 - BlockShift
	// maxRules bounds the rules of a table. A large library has a thousand. A file with
	// more was crafted to waste memory.
	maxRules = 1 << 16
)

// Row is the rule in force from an address until the next row. The upper BlockShift bits
// are the address within its block, the lower bits the index of the rule.
type Row uint32

func newRow(addr uint64, rule uint32) Row {
	return Row(uint32(addr)<<ruleBits | rule)
}

// Low returns the address within the row's block.
func (r Row) Low() uint32 { return uint32(r) >> ruleBits }

// Rule returns the index of the row's rule.
func (r Row) Rule() uint32 { return uint32(r) & (1<<ruleBits - 1) }

// WithRule returns a row for the same address with another rule's index.
func (r Row) WithRule(rule uint32) Row { return newRow(uint64(r.Low()), rule) }

// Segment is a part of a file's code that a table describes: an executable segment.
type Segment struct {
	// Addr is the link-time virtual address, Offset the file offset, and Size the number
	// of bytes.
	Addr, Offset, Size uint64
	// FirstBlock is the index in Table.Blocks of the block that contains Addr. An address
	// belongs to block FirstBlock + addr>>BlockShift - Addr>>BlockShift.
	FirstBlock uint32
}

// Table describes how to unwind from each address of a file. It is immutable.
type Table struct {
	// Segments are sorted by address and do not overlap.
	Segments []Segment
	// Blocks holds for each block the index in Rows of the first row that begins in it. A
	// block's rows end where the next block's rows begin; each segment has one extra
	// block for this. If no row of its block is at or below an address, the last row
	// before the block is in force. A segment's first block begins with a row.
	Blocks []uint32
	// Rows are sorted by segment and address.
	Rows []Row
	// Rules are distinct. The first is the zero Rule.
	Rules []Rule
	// Stats describes the input of the table.
	Stats Stats
}

// Stats describes how a table was made.
type Stats struct {
	// Source is the number of bytes of call frame information that were read.
	Source int64
	// Functions is the number of FDEs that describe code of the file.
	Functions int
	// Analyzed is whether rules were made from code, and Unread the number of bytes of code that was left
	// to analyze.
	Analyzed bool
	Unread   uint64
	// Instructions is the number of instructions that were executed for that.
	Instructions int
	// Damaged is the number of CIEs and FDEs that could not be read completely. Their
	// functions have no table, or an unsupported rule from the damage on.
	Damaged int
	// Damage is the first error in the file, or nil.
	Damage error
}

// Bytes returns the memory size of the table.
func (t *Table) Bytes() int { return 4*len(t.Blocks) + 4*len(t.Rows) + 16*len(t.Rules) }

// Lookup returns the rule for a link-time virtual address. For a return address, pass the
// address of the byte before it: the call may be the last instruction of its function.
func (t *Table) Lookup(addr uint64) Rule {
	for i := range t.Segments {
		if s := &t.Segments[i]; addr-s.Addr < s.Size {
			return t.lookup(s, addr)
		}
	}
	return Rule{}
}

func (t *Table) lookup(s *Segment, addr uint64) Rule {
	block := uint64(s.FirstBlock) + addr>>BlockShift - s.Addr>>BlockShift
	first, end := t.Blocks[block], t.Blocks[block+1]
	rows := t.Rows[first:end]
	low := uint32(addr) & (blockSize - 1)
	n := sort.Search(len(rows), func(i int) bool { return rows[i].Low() > low })
	return t.Rules[t.Rows[int(first)+n-1].Rule()]
}

// Address returns the link-time virtual address of the code at a file offset. ok is false if
// the table does not describe it.
func (t *Table) Address(offset uint64) (addr uint64, ok bool) {
	for _, s := range t.Segments {
		if offset-s.Offset < s.Size {
			return s.Addr + offset - s.Offset, true
		}
	}
	return 0, false
}

// Each calls yield with every row's address and rule, in order, until yield
// returns false. A rule is in force until the next address or the end of the
// segment.
func (t *Table) Each(yield func(addr uint64, r Rule) bool) {
	for i, s := range t.Segments {
		end := uint32(len(t.Blocks))
		if i+1 < len(t.Segments) {
			end = t.Segments[i+1].FirstBlock
		}
		base := s.Addr &^ (blockSize - 1)
		for b := s.FirstBlock; b+1 < end; b++ {
			for _, row := range t.Rows[t.Blocks[b]:t.Blocks[b+1]] {
				if !yield(base+uint64(row.Low()), t.Rules[row.Rule()]) {
					return
				}
			}
			base += blockSize
		}
	}
}
