package dwarfdata

import (
	"math"
	"testing"
)

// The examples are from DWARF 5, Tables 7.7 and 7.8, plus values that do not fit.
func TestLEB(t *testing.T) {
	for _, tt := range []struct {
		data     string
		unsigned uint64
		signed   int64
	}{
		{"\x02", 2, 2},
		{"\x7f", 127, -1},
		{"\x7e", 126, -2},
		{"\x80\x01", 128, 128},
		{"\x81\x7f", 16257, -127},
		{"\x80\x7f", 16256, -128},
		{"\xb9\x64", 12857, -3527},
		{"\x80\x80\x00", 0, 0},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", math.MaxUint64, -1},
		{"\x83\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f", 3, 3},
	} {
		u, s := Reader{Data: []byte(tt.data)}, Reader{Data: []byte(tt.data)}
		if got := u.ULEB(); got != tt.unsigned || u.Bad || u.Left() != 0 {
			t.Errorf("%x: got %d unsigned, want %d; %d bytes left, bad: %t", tt.data, got, tt.unsigned, u.Left(), u.Bad)
		}
		if got := s.SLEB(); got != tt.signed || s.Bad || s.Left() != 0 {
			t.Errorf("%x: got %d signed, want %d; %d bytes left, bad: %t", tt.data, got, tt.signed, s.Left(), s.Bad)
		}
	}
}

// A read past the end returns 0, and so do all later reads.
func TestPastEnd(t *testing.T) {
	for name, read := range map[string]func(*Reader) uint64{
		"U16":        func(r *Reader) uint64 { return uint64(r.U16()) },
		"U24":        func(r *Reader) uint64 { return uint64(r.U24()) },
		"U32":        func(r *Reader) uint64 { return uint64(r.U32()) },
		"U64":        func(r *Reader) uint64 { return r.U64() },
		"Word":       func(r *Reader) uint64 { return r.Word(3) },
		"ULEB":       func(r *Reader) uint64 { return r.ULEB() },
		"SLEB":       func(r *Reader) uint64 { return uint64(r.SLEB()) },
		"CString":    func(r *Reader) uint64 { return uint64(len(r.CString())) },
		"Block":      func(r *Reader) uint64 { return uint64(len(r.Block())) },
		"Take":       func(r *Reader) uint64 { return uint64(len(r.Take(math.MaxUint64))) },
		"UnitLength": func(r *Reader) uint64 { n, _ := r.UnitLength(); return n },
	} {
		r := Reader{Data: []byte{0x80}}
		if got := read(&r); got != 0 || !r.Bad || r.Left() != 0 {
			t.Errorf("%s: got %d, bad: %t, %d bytes left; want 0, true, 0", name, got, r.Bad, r.Left())
		}
		if got := r.U8(); got != 0 {
			t.Errorf("after %s: got %d, want 0", name, got)
		}
	}
}

// A unit's length determines the size of its offsets.
func TestUnitLength(t *testing.T) {
	for _, tt := range []struct {
		data   string
		length uint64
		size   uint8
		bad    bool
	}{
		{"\x10\x00\x00\x00", 16, 4, false},
		{"\xff\xff\xff\xff\x10\x00\x00\x00\x00\x00\x00\x01", 1<<56 + 16, 8, false},
		{"\xf0\xff\xff\xff", 0, 4, true},
	} {
		r := Reader{Data: []byte(tt.data)}
		if length, size := r.UnitLength(); length != tt.length || size != tt.size || r.Bad != tt.bad {
			t.Errorf("%x: got %d, %d, bad: %t; want %d, %d, %t", tt.data, length, size, r.Bad, tt.length, tt.size, tt.bad)
		}
	}
}
