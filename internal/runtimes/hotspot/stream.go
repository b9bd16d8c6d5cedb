package hotspot

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"
)

// stream decodes HotSpot's compressed numbers (UNSIGNED5). A number has up to 5 bytes of 6
// bits each; after a byte with a large value, more follow. From JDK 20 on, no byte is 0; see
// src/hotspot/share/utilities/unsigned5.hpp.
type stream struct {
	b        []byte
	excludes byte // 1 if no byte is 0
	failed   bool // the data ended
}

func newStream(b []byte, version int) *stream {
	s := &stream{b: b}
	if version >= 20 {
		s.excludes = 1
	}
	return s
}

func (s *stream) next() byte {
	if len(s.b) == 0 {
		s.failed = true
		return 0
	}
	b := s.b[0]
	s.b = s.b[1:]
	return b
}

// unsigned returns the next number.
func (s *stream) unsigned() uint32 {
	const high = 64 // bytes from 256-64 on are followed by others
	sum := uint32(0)
	for i := range 5 {
		b := s.next()
		if b < s.excludes {
			s.failed = true
			return 0
		}
		sum += uint32(b-s.excludes) << (6 * i)
		if int(b) < 256-high {
			break
		}
	}
	return sum
}

// signed returns the next number, whose lowest bit is its sign.
func (s *stream) signed() int {
	n := s.unsigned()
	return int(int32(n>>1) ^ -int32(n&1))
}

// lineRow is a row of a line table: the line of bytecodes from bci on. In class files, both
// have 16 bits.
type lineRow struct{ bci, line uint16 }

const lineSize = 4 // bytes of a lineRow

// lines are the rows of a line table, sorted by bci.
type lines []lineRow

// readLines decodes a compressed table of lines; see CompressedLineNumberReadStream in
// src/hotspot/share/oops/method.cpp. It ends at invalid data.
func readLines(table []byte, version int) (l lines) {
	const end, escape = 0, 0xff
	s := newStream(table, version)
	at, line := 0, 0
	for {
		b := s.next()
		if b == end || s.failed {
			break
		}
		if b == escape {
			at += s.signed()
			line += s.signed()
		} else {
			at += int(b >> 3)
			line += int(b & 7)
		}
		if s.failed || at < 0 || at > math.MaxUint16 || line < 0 || line > math.MaxUint16 {
			break
		}
		l = append(l, lineRow{uint16(at), uint16(line)})
	}
	slices.SortStableFunc(l, func(a, b lineRow) int { return cmp.Compare(a.bci, b.bci) })
	return slices.Clip(l)
}

// at returns the line of a bytecode, or 0.
func (l lines) at(bci int) int {
	i := sort.Search(len(l), func(i int) bool { return int(l[i].bci) > bci })
	if i == 0 {
		return 0
	}
	return int(l[i-1].line)
}

// pcDescSize is the size of a PcDesc: pc_offset, scope_decode_offset, obj_decode_offset, and
// flags, each of 4 bytes.
const pcDescSize = 16

// scopeAt returns the offset of the scope that describes an offset in code, or 0. HotSpot
// describes only the ends of calls and safepoints, sorted by offset. scopeAt uses the next
// one.
func scopeAt(pcs []byte, offset int64) int {
	n := len(pcs) / pcDescSize
	i := sort.Search(n, func(i int) bool { return int64(int32(binary.LittleEndian.Uint32(pcs[i*pcDescSize:]))) > offset })
	if i == n {
		return 0
	}
	return int(int32(binary.LittleEndian.Uint32(pcs[i*pcDescSize+4:])))
}

// scope is a method, by its index in the metadata, and the index of a bytecode in it, or a
// negative number.
type scope struct{ method, bci int }

// maxScopes bounds the calls that are inlined into each other. HotSpot's limits are about 15.
const maxScopes = 128

// scopes returns the scopes at an offset of the scopes data, innermost first, or none if the
// data is invalid; see ScopeDesc::decode_body() of HotSpot.
func scopes(data []byte, version, offset int) (list []scope) {
	for offset > 0 {
		if offset >= len(data) || len(list) >= maxScopes {
			return nil
		}
		s := newStream(data[offset:], version)
		offset = int(s.unsigned())
		is := scope{method: int(s.unsigned()), bci: int(int32(s.unsigned())) - 1} // InvocationEntryBci is -1
		if s.failed {
			return nil
		}
		list = append(list, is)
	}
	return list
}
