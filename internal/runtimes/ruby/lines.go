package ruby

import (
	"encoding/binary"
	"math/bits"

	"fulgur/internal/runtimes"
)

// The line table as bpf/ruby.h sends it: the size of the entries in bytes, as a 64-bit
// number; the entries (iseq_insn_info_entry of iseq.h); and the index from positions to
// entries.
const (
	entriesAt = 8
	entrySize = 12 // the line is first

	// The index (succ_index_table of iseq.c): words with the numbers of the entries of the
	// first positions, 7 bits each, then blocks for the other positions.
	near      = 54
	nearEach  = 9
	nearBits  = 7
	blocksAt  = near / nearEach * 8
	block     = 512 // positions
	blockSize = 80  // bytes: rank, ranks of the words that follow, and a bit for each position
	ranksAt   = 8
	rankBits  = 9
	bitsAt    = 16
)

// Line implements [runtimes.Runtime]. A position is the index of a word of the instructions.
func (Runtime) Line(c *runtimes.Code, position int) int {
	if position < 0 {
		return c.FirstLine
	}
	table := []byte(c.Lines)
	if len(table) < entriesAt {
		return 0
	}
	n := binary.LittleEndian.Uint64(table)
	table = table[entriesAt:]
	if n > uint64(len(table)) {
		return 0
	}
	entries, index := table[:n], table[n:]
	number := 1
	if n != entrySize {
		number = lookUp(index, position)
	}
	if number < 1 || number > len(entries)/entrySize {
		return 0
	}
	return int(max(int32(binary.LittleEndian.Uint32(entries[(number-1)*entrySize:])), 0))
}

// lookUp returns the number of the entry that has a position, counted from 1. It returns 0 if
// the index does not have the position.
func lookUp(index []byte, position int) int {
	word := func(at int) uint64 {
		if at+8 > len(index) {
			return 0
		}
		return binary.LittleEndian.Uint64(index[at:])
	}
	if position < near {
		return int(word(position/nearEach*8) >> (position % nearEach * nearBits) & (1<<nearBits - 1))
	}
	position -= near
	at := blocksAt + position/block*blockSize
	if at+blockSize > len(index) {
		return 0
	}
	position %= block
	i := position / 64
	rank := uint64(uint32(word(at)))
	if i > 0 {
		rank += word(at+ranksAt) >> ((i - 1) * rankBits) & (1<<rankBits - 1)
	}
	return int(rank) + bits.OnesCount64(word(at+bitsAt+8*i)<<(63-position%64))
}
