package perfevent

import (
	"bytes"
	"encoding/binary"
)

// Fields reads a structure of the kernel or of perf from its start, in the machine's byte order. Reading beyond its
// end returns zeros and sets Short.
type Fields struct {
	// B is the unread part.
	B     []byte
	Short bool
}

// Take returns the next n bytes, or nil if there are fewer.
func (f *Fields) Take(n uint64) []byte {
	if uint64(len(f.B)) < n {
		f.B, f.Short = nil, true
		return nil
	}
	b := f.B[:n]
	f.B = f.B[n:]
	return b
}

// U32 returns the next number of 32 bits.
func (f *Fields) U32() uint32 {
	if b := f.Take(4); b != nil {
		return binary.NativeEndian.Uint32(b)
	}
	return 0
}

// U64 returns the next number of 64 bits.
func (f *Fields) U64() uint64 {
	if b := f.Take(8); b != nil {
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

// ID returns the next process or thread ID. It is -1 for a task outside our PID namespace.
func (f *Fields) ID() int { return int(int32(f.U32())) }

// First returns the next number of 64 bits, and does not advance.
func (f Fields) First() uint64 { return f.U64() }

// Text returns the remaining text up to the first NUL.
func (f *Fields) Text() string {
	b := f.B
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
