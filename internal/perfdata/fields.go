package perfdata

import (
	"bytes"
	"encoding/binary"
)

// fields reads a structure from its start. Reading beyond its end returns zeros and is
// recorded.
type fields struct {
	b     []byte
	short bool
}

// take returns the next n bytes, or nil if there are fewer.
func (f *fields) take(n uint64) []byte {
	if uint64(len(f.b)) < n {
		f.b, f.short = nil, true
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

func (f *fields) u32() uint32 {
	if b := f.take(4); b != nil {
		return binary.NativeEndian.Uint32(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.take(8); b != nil {
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

// first returns the next number and does not advance.
func (f fields) first() uint64 { return f.u64() }

// sized returns a string that follows its length and is padded with NULs.
func (f *fields) sized() string {
	text := fields{b: f.take(uint64(f.u32()))}
	return text.cstring()
}

// cstring returns the remaining text up to the first NUL.
func (f *fields) cstring() string {
	b := f.b
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
