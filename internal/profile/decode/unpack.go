package decode

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"fulgur/internal/files/unpack"
	"fulgur/internal/profile"
)

// sniffed is the number of bytes from which the format is detected.
const sniffed = 64 << 10

// limited reads at most left bytes of r, and nothing after ctx is done.
type limited struct {
	ctx  context.Context
	r    io.Reader
	left int64
	err  error // the error for a longer input
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if l.left <= 0 {
		return 0, l.err
	}
	n, err := l.r.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	return n, err
}

// unpacked returns a reader of the contents of r, which may be compressed, until ctx is
// done. Text in UTF-16 becomes UTF-8, and a byte order mark is dropped.
func unpacked(ctx context.Context, r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(&limited{ctx, r, profile.MaxUnpacked, profile.ErrUnpacked}, sniffed)
	if method := unpack.Peek(in); method != nil {
		z, err := method.Reader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(&limited{ctx, z, profile.MaxUnpacked, profile.ErrUnpacked}, sniffed)
		if again := unpack.Peek(in); again != nil {
			return nil, fmt.Errorf("compressed twice: unpack it with %s -d first", method.Name)
		}
	}
	mark, _ := in.Peek(len(utf8Mark)) // a shorter input has no mark
	switch {
	case string(mark) == utf8Mark:
		_, err := in.Discard(len(utf8Mark))
		return in, err
	case len(mark) >= 2 && mark[0] == 0xff && mark[1] == 0xfe && mark[len(mark)-1] != 0:
		return bufio.NewReaderSize(&utf16Reader{r: in, low: 0}, sniffed), nil
	case len(mark) >= 2 && mark[0] == 0xfe && mark[1] == 0xff:
		return bufio.NewReaderSize(&utf16Reader{r: in, low: 1}, sniffed), nil
	}
	return in, nil
}

// utf8Mark is the byte order mark in UTF-8.
const utf8Mark = "\xef\xbb\xbf"

// utf16Reader reads text in UTF-16 as UTF-8, without byte order marks. Windows PowerShell writes
// redirected output so.
type utf16Reader struct {
	r    *bufio.Reader
	low  int    // the place of the low byte in a unit
	high uint16 // the first half of a character, 0 if there is none
	text []byte // not yet read
	err  error
}

// Read implements io.Reader.
func (u *utf16Reader) Read(b []byte) (int, error) {
	for len(u.text) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		u.fill()
	}
	n := copy(b, u.text)
	u.text = u.text[n:]
	return n, nil
}

// fill reads some units.
func (u *utf16Reader) fill() {
	u.text = u.text[:0]
	for range 4 << 10 {
		var pair [2]byte
		if _, u.err = io.ReadFull(u.r, pair[:]); u.err != nil {
			if u.high != 0 {
				u.text, u.high = utf8.AppendRune(u.text, utf8.RuneError), 0
			}
			return
		}
		unit := uint16(pair[u.low]) | uint16(pair[1-u.low])<<8
		switch {
		case u.high != 0:
			both := utf16.DecodeRune(rune(u.high), rune(unit))
			u.high = 0
			if u.text = utf8.AppendRune(u.text, both); both != utf8.RuneError {
				continue
			}
		case unit == 0xfeff:
			continue
		}
		if utf16.IsSurrogate(rune(unit)) && unit < 0xdc00 {
			u.high = unit
			continue
		}
		u.text = utf8.AppendRune(u.text, rune(unit))
	}
}

// readAll reads an input that must be in memory as a whole.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	tooLong := fmt.Errorf("more than %d MiB unpacked", profile.MaxHeld>>20)
	return io.ReadAll(&limited{ctx, r, profile.MaxHeld, tooLong})
}
