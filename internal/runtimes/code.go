package runtimes

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/linux/ringbuf"
)

// Code is a function of a runtime. It is comparable: functions that are equal have the
// same names and lines.
type Code struct {
	Kind Kind
	// Name is the function's qualified name, and File the file that it was compiled
	// from, both untrusted and at most 256 bytes long with what marks that they were cut.
	Name, File string
	// FirstLine is the line where the function begins, 1-based, or 0.
	FirstLine int
	// Version says how to read Lines, the table of its lines.
	Version uint32
	Lines   string
}

// Identity is what the kernel side knows code by.
type Identity struct {
	Epoch, Address uint64
	Check          uint32
}

const codeHeader = unsafe.Offsetof(bpf.CodeRecord{}.LineTable)

// ParseCode reads a record of code.
func ParseCode(record []byte) (Identity, Code, error) {
	r, err := ringbuf.As[bpf.CodeRecord](record, codeHeader)
	if err != nil {
		return Identity{}, Code{}, err
	}
	if n := uintptr(len(record)) - codeHeader; uintptr(r.Lines) > min(n, uintptr(len(r.LineTable))) {
		return Identity{}, Code{}, fmt.Errorf("%w: %d bytes of lines in %d bytes", ringbuf.ErrRecord, r.Lines, len(record))
	}
	return Identity{r.Epoch, r.Address, r.Check}, Code{
		Kind:      Kind(r.Kind),
		Name:      text(r.NameText[:], r.Name.Length, r.Name.Width),
		File:      text(r.FileText[:], r.File.Length, r.File.Width),
		FirstLine: int(max(int32(r.FirstLine), 0)),
		Version:   r.Version,
		Lines:     string(r.LineTable[:r.Lines]),
	}, nil
}

// cut marks a text that was cut.
const cut = "…"

// text converts a text of length characters of width bytes each to UTF-8: of Latin-1, or
// UTF-16 or UTF-32 without surrogates. b is its begin.
func text(b []byte, length, width uint32) string {
	if width != 1 && width != 2 && width != 4 {
		return ""
	}
	whole := uint64(length) * uint64(width)
	b = b[:min(uint64(len(b)), whole)]
	var s strings.Builder
	for i := 0; i+int(width) <= len(b); i += int(width) {
		switch width {
		case 1:
			s.WriteRune(rune(b[i]))
		case 2:
			s.WriteRune(one(rune(binary.NativeEndian.Uint16(b[i:]))))
		default:
			s.WriteRune(one(rune(binary.NativeEndian.Uint32(b[i:]))))
		}
	}
	if uint64(len(b)) < whole {
		s.WriteString(cut)
	}
	return s.String()
}

// one returns r, or what stands for a character that UTF-8 does not have.
func one(r rune) rune {
	if !utf8.ValidRune(r) || utf16.IsSurrogate(r) {
		return utf8.RuneError
	}
	return r
}
