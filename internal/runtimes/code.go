package runtimes

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
)

// Code is a function of a runtime. It is comparable: equal functions have the
// same names and lines.
type Code struct {
	Kind Kind
	// Name is the function's qualified name, and File its source file. Both are
	// untrusted. The kernel side sends at most 256 bytes of each; "…" marks a
	// truncated one.
	Name, File string
	// FirstLine is the line where the function begins, 1-based, or 0.
	FirstLine int
	// Version is the format of Lines, the line table.
	Version uint32
	Lines   string
}

// Identity identifies code in the kernel side's records.
type Identity struct {
	Epoch, Address uint64
	Check          uint32
}

const codeHead = int(unsafe.Sizeof(bpf.CodeHead{}))

// ParseCode parses a bpf.CodeHead and the line table that follows it.
func ParseCode(record []byte) (Identity, Code, error) {
	r, err := ringbuf.As[bpf.CodeHead](record, uintptr(codeHead))
	if err != nil {
		return Identity{}, Code{}, err
	}
	lines := record[codeHead:]
	if uint64(r.Lines) > uint64(len(lines)) {
		return Identity{}, Code{}, fmt.Errorf("%w: %d bytes of lines in %d bytes", ringbuf.ErrRecord, r.Lines, len(record))
	}
	return Identity{r.Epoch, r.Address, r.Check}, Code{
		Kind:      Kind(r.Kind),
		Name:      Text(r.NameText[:], r.Name.Length, r.Name.Width),
		File:      Text(r.FileText[:], r.File.Length, r.File.Width),
		FirstLine: int(max(int32(r.FirstLine), 0)),
		Version:   r.Version,
		Lines:     string(lines[:r.Lines]),
	}, nil
}

// Cut marks a truncated text.
const Cut = "…"

// Text converts a text of length characters to UTF-8. Characters have width bytes: 1 for
// Latin-1, 2 for UCS-2, 4 for UTF-32. With width 0, the text is already in UTF-8 and has
// length bytes. If b holds only the start of the text, the result ends with "…".
func Text(b []byte, length, width uint32) string {
	if width == 0 {
		return utf8Text(b, length)
	}
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
			s.WriteRune(validRune(rune(binary.NativeEndian.Uint16(b[i:]))))
		default:
			s.WriteRune(validRune(rune(binary.NativeEndian.Uint32(b[i:]))))
		}
	}
	if uint64(len(b)) < whole {
		s.WriteString(Cut)
	}
	return s.String()
}

// utf8Text returns a text of length bytes of UTF-8, which begins with b. It truncates a text
// at a zero byte: only forged names contain one, and escaping the rest could make the name
// long.
func utf8Text(b []byte, length uint32) string {
	if i := bytes.IndexByte(b[:min(uint64(len(b)), uint64(length))], 0); i >= 0 {
		return strings.ToValidUTF8(string(b[:i]), string(utf8.RuneError)) + Cut
	}
	if uint64(len(b)) >= uint64(length) {
		return strings.ToValidUTF8(string(b[:length]), string(utf8.RuneError))
	}
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				b = b[:i]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError)) + Cut
}

// validRune returns r, or the replacement character if r is not valid in UTF-8.
func validRune(r rune) rune {
	if !utf8.ValidRune(r) || utf16.IsSurrogate(r) {
		return utf8.RuneError
	}
	return r
}
