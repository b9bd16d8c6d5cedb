package bolt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// maxLine is the maximum length of a line, in bytes. Only an event's name could make a
// line longer.
const maxLine = 4096

// SyntaxError reports a line that is neither of a profile, as perf2bolt reads it, nor of perf script.
type SyntaxError struct {
	// File is the name of the input, Line the line number, starting at 1, and Offset
	// the start of the line in the file, in bytes.
	File   string
	Line   int
	Offset int64
	// Problem describes the error.
	Problem string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s:%d (offset %#x): %s", e.File, e.Line, e.Offset, e.Problem)
}

// Reader reads a pre-aggregated profile of any version of LLVM. It is as strict as
// perf2bolt: one or more spaces between fields, hexadecimal addresses without 0x, no
// empty lines or comments, and a newline at the end.
type Reader struct {
	r      *bufio.Reader
	name   string
	line   int
	offset int64

	mispredicted Line // B line due after a T line with mispredictions
}

// NewReader returns a Reader of r; name is used in errors.
func NewReader(r io.Reader, name string) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, maxLine), name: name}
}

// Next returns the next line, or io.EOF. It converts features of newer LLVM versions to
// the format of LLVM 22: the mispredictions of a T or R line become a B line after it,
// and a T line without a fall-through becomes a B line.
func (r *Reader) Next() (Line, error) {
	if l := r.mispredicted; l.Kind != 0 {
		r.mispredicted = Line{}
		return l, nil
	}
	text, err := r.r.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(text) == 0:
		return Line{}, io.EOF
	case errors.Is(err, io.EOF):
		r.line++
		return Line{}, r.errorf("no newline at the end: the file is truncated")
	case errors.Is(err, bufio.ErrBufferFull):
		r.line++
		return Line{}, r.errorf("line of more than %d bytes", maxLine)
	case err != nil:
		return Line{}, fmt.Errorf("%s: %w", r.name, err)
	}
	r.line++
	l, err := r.parse(string(text[:len(text)-1]))
	if err != nil {
		return Line{}, err
	}
	r.offset += int64(len(text))
	if l.Kind == KindTrace && l.Addr[2] == branchOnly {
		l.Kind, l.Addr[2] = KindBranch, 0
	}
	if l.Kind != KindBranch && l.Mispredicted > 0 {
		r.mispredicted = Line{Kind: KindBranch, Addr: [3]uint64{l.Addr[0], l.Addr[1]}, Mispredicted: l.Mispredicted}
		l.Mispredicted = 0
	}
	return l, nil
}

func (r *Reader) errorf(format string, args ...any) error {
	return &SyntaxError{File: r.name, Line: r.line, Offset: r.offset, Problem: fmt.Sprintf(format, args...)}
}

// parse parses a line without its newline.
func (r *Reader) parse(text string) (Line, error) {
	kind, rest := field(text)
	var l Line
	if len(kind) == 1 {
		l.Kind = Kind(kind[0])
	}
	addresses, ok := l.Kind.addresses()
	if !ok {
		const expected = "expected a line of a BOLT profile (E, S, T, R, B, F, f or r)"
		if strings.ContainsFunc(kind, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return l, r.errorf(expected + "; this is not text")
		}
		return l, r.errorf(expected+", found %.40q", kind)
	}
	if l.Kind == KindEvent {
		l.Event, rest = field(rest)
		l.Event = strings.Clone(l.Event) // its text may be followed by many spaces
		if l.Event == "" || strings.ContainsAny(l.Event, "\t\r") {
			return l, r.errorf("expected the name of an event")
		}
		return l, r.end(rest)
	}
	var err error
	for i := range addresses {
		if l.Addr[i], rest, err = r.address(rest); err != nil {
			return l, err
		}
	}
	if l.Count, rest, err = r.count(rest); err != nil {
		return l, err
	}
	switch l.Kind {
	case KindBranch, KindTrace, KindReturn:
		if strings.Trim(rest, " ") != "" {
			if l.Mispredicted, rest, err = r.count(rest); err != nil {
				return l, err
			}
		}
	}
	return l, r.end(rest)
}

// field splits off the first field of text.
func field(text string) (first, rest string) {
	text = strings.TrimLeft(text, " ")
	if i := strings.IndexByte(text, ' '); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

func (r *Reader) end(rest string) error {
	if rest = strings.Trim(rest, " "); rest != "" {
		return r.errorf("expected the end of the line, found %.40q", rest)
	}
	return nil
}

// address parses a link-time address, or a marker of newer LLVM versions from -1 to -3.
func (r *Reader) address(text string) (addr uint64, rest string, err error) {
	f, rest := field(text)
	switch f {
	case "-1", "-2", "-3":
		return -uint64(f[1] - '0'), rest, nil
	}
	prefix, digits, prefixed := strings.Cut(f, ":")
	if !prefixed {
		digits = f
	}
	if digits == "" || digits[0] == '+' {
		return 0, "", r.errorf("expected a hexadecimal address, found %.40q", f)
	}
	addr, err = strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return 0, "", r.errorf("expected a hexadecimal address, found %.40q", f)
	}
	if prefixed && addr != 0 {
		return 0, "", r.errorf("address of another file (%.40q), which LLVM 22 and older misread as an address of this file: write it as 0", prefix+":"+digits)
	}
	return addr, rest, nil
}

func (r *Reader) count(text string) (n uint64, rest string, err error) {
	f, rest := field(text)
	if f == "" || f[0] == '+' {
		return 0, "", r.errorf("expected a count, found %.40q", f)
	}
	if n, err = strconv.ParseUint(f, 10, 64); err != nil || n > math.MaxInt64 {
		return 0, "", r.errorf("expected a count, found %.40q", f)
	}
	return n, rest, nil
}
