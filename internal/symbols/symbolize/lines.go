package symbolize

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eachLine calls f with every line of r, without its newline, until f returns false. The
// line is valid until f returns, and truncated to 64 KiB.
func eachLine(r io.Reader, f func(line []byte) bool) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadSlice('\n')
		if len(line) > 0 && !f(bytes.TrimSuffix(line, []byte("\n"))) {
			return nil
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = br.ReadSlice('\n')
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cutHex parses the hexadecimal number of at most 64 bits at the start of b. It returns the
// rest of b after the number and a space.
func cutHex(b []byte) (v uint64, rest []byte, ok bool) {
	for i, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		case c == ' ' && i > 0:
			return v, b[i+1:], true
		default:
			return 0, nil, false
		}
		if v>>60 != 0 {
			return 0, nil, false
		}
		v = v<<4 | uint64(c)
	}
	return 0, nil, false
}
