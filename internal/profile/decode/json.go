package decode

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"fulgur/internal/profile"
)

// jsonReader reads JSON value by value. Unlike [json.Decoder] it holds no more of a value
// in memory than its caller keeps: columns of a profile have millions of rows.
type jsonReader struct {
	r      *bufio.Reader
	offset int64
	buf    []byte
	kept   []byte // the text from offset from on, up to keep bytes
	from   int64
	keep   int
}

// maxNested is the maximum nesting depth of skipped values.
const maxNested = 256

var errJSONEnd = errors.New("the text ends within a value")

// jsonError is an error of JSON that is not as expected.
type jsonError struct {
	offset int64
	text   string
}

// Error implements error.
func (e *jsonError) Error() string { return fmt.Sprintf("at byte %d: %s", e.offset, e.text) }

func (j *jsonReader) errorf(format string, args ...any) error {
	return &jsonError{j.offset, fmt.Sprintf(format, args...)}
}

// byte returns the next byte.
func (j *jsonReader) byte() (byte, error) {
	c, err := j.r.ReadByte()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errJSONEnd
		}
		return 0, err
	}
	j.offset++
	if len(j.kept) < j.keep && j.offset > j.from+int64(len(j.kept)) { // not after back
		j.kept = append(j.kept, c)
	}
	return c, nil
}

// back unreads the last byte.
func (j *jsonReader) back() {
	_ = j.r.UnreadByte() // cannot fail after a read
	j.offset--
}

// token returns the next byte that is not white space.
func (j *jsonReader) token() (byte, error) {
	for {
		c, err := j.byte()
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

// ends reports whether only white space follows.
func (j *jsonReader) ends() (bool, error) {
	_, err := j.token()
	switch {
	case errors.Is(err, errJSONEnd):
		return true, nil
	case err != nil:
		return false, err
	}
	j.back()
	return false, nil
}

// begin reads the first byte of a value, which must be want. It returns false if the
// value is null.
func (j *jsonReader) begin(want byte) (bool, error) {
	c, err := j.token()
	switch {
	case err != nil:
		return false, err
	case c == want:
		return true, nil
	case c == 'n':
		return false, j.rest("ull")
	}
	return false, j.errorf("%q where %q was expected", c, want)
}

// rest reads the rest of a word.
func (j *jsonReader) rest(word string) error {
	for _, want := range []byte(word) {
		if c, err := j.byte(); err != nil {
			return err
		} else if c != want {
			return j.errorf("%q where %q was expected", c, want)
		}
	}
	return nil
}

// more reads up to the next element: a comma unless it is the first. It returns false at
// the end.
func (j *jsonReader) more(first bool, end byte) (bool, error) {
	c, err := j.token()
	switch {
	case err != nil:
		return false, err
	case c == end:
		return false, nil
	case first:
		j.back()
		return true, nil
	case c == ',':
		return true, nil
	}
	return false, j.errorf("%q where ',' or %q was expected", c, end)
}

// object reads an object. member reads the value of each key.
func (j *jsonReader) object(member func(key string) error) error {
	ok, err := j.begin('{')
	if !ok {
		return err
	}
	for first := true; ; first = false {
		if ok, err = j.more(first, '}'); !ok {
			return err
		}
		key, err := j.string()
		if err != nil {
			return err
		}
		if c, err := j.token(); err != nil {
			return err
		} else if c != ':' {
			return j.errorf("%q where ':' was expected", c)
		}
		if err := member(key); err != nil {
			return err
		}
	}
}

// array reads an array. element reads each value.
func (j *jsonReader) array(element func() error) error {
	ok, err := j.begin('[')
	if !ok {
		return err
	}
	for first := true; ; first = false {
		if ok, err = j.more(first, ']'); !ok {
			return err
		}
		if err := element(); err != nil {
			return err
		}
	}
}

// string reads a string, truncated to the maximum length of names. null is read as "".
func (j *jsonReader) string() (string, error) {
	ok, err := j.begin('"')
	if !ok {
		return "", err
	}
	return j.quoted()
}

// quoted reads the rest of a string after its quotation mark.
func (j *jsonReader) quoted() (string, error) {
	const limit = profile.MaxName + 64 // so that it is recognized as too long
	j.buf = append(j.buf[:0], '"')
	simple := true
	for {
		// Keep or drop characters and escapes as a whole.
		c, err := j.byte()
		if err != nil {
			return "", err
		}
		if c == '"' {
			break
		}
		unit := []byte{c}
		switch {
		case c < ' ':
			return "", j.errorf("control character %#x in a text", c)
		case c == '\\':
			simple = false
			if c, err = j.byte(); err != nil {
				return "", err
			}
			unit = append(unit, c)
			for range 4 {
				if unit[1] != 'u' {
					break
				}
				if c, err = j.byte(); err != nil {
					return "", err
				}
				unit = append(unit, c)
			}
		case c >= 0x80:
			simple = false // may be invalid UTF-8
		}
		if len(j.buf) < limit {
			j.buf = append(j.buf, unit...)
		}
	}
	if simple {
		return string(j.buf[1:]), nil
	}
	j.buf = append(j.buf, '"')
	var s string
	if err := json.Unmarshal(j.buf, &s); err != nil {
		return "", j.errorf("%v", err)
	}
	return s, nil
}

// number reads a number. null reports whether it is null.
func (j *jsonReader) number() (v float64, null bool, err error) {
	c, err := j.token()
	if err != nil {
		return 0, false, err
	}
	if c == 'n' {
		return 0, true, j.rest("ull")
	}
	// Most are short integers.
	negative := c == '-'
	var n int64
	digits := 0
	j.buf = j.buf[:0]
	for whole := true; isNumber(c); {
		if len(j.buf) == 400 { // more digits than any number needs
			return 0, false, j.errorf("a number of more than %d characters", len(j.buf))
		}
		j.buf = append(j.buf, c)
		switch {
		case '0' <= c && c <= '9' && whole && digits < 15:
			n = 10*n + int64(c-'0')
			digits++
		case c != '-' || len(j.buf) > 1:
			whole, digits = false, math.MinInt
		}
		if c, err = j.byte(); err != nil {
			if !errors.Is(err, errJSONEnd) {
				return 0, false, err
			}
			break
		}
	}
	if err == nil {
		j.back()
	}
	if digits > 0 {
		if negative {
			n = -n
		}
		return float64(n), false, nil
	}
	v, err = strconv.ParseFloat(string(j.buf), 64)
	if err != nil {
		return 0, false, j.errorf("%.40q is not a number", j.buf)
	}
	return v, false, nil
}

func isNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// textOrNumber reads a value that is a string or a number.
func (j *jsonReader) textOrNumber() (text string, number float64, err error) {
	c, err := j.token()
	if err != nil {
		return "", 0, err
	}
	if c == '"' {
		text, err = j.quoted()
		return text, 0, err
	}
	j.back()
	number, _, err = j.number()
	return "", number, err
}

// text returns a value of any kind as JSON, "" if that is longer than limit bytes.
func (j *jsonReader) text(limit int) (string, error) {
	j.kept, j.from, j.keep = nil, j.offset, limit
	err := j.skip()
	text, length := j.kept, j.offset-j.from
	j.kept, j.keep = nil, 0
	if length > int64(limit) {
		return "", err
	}
	return string(text[:length]), err // without a byte that was unread
}

// skip skips a value of any kind.
func (j *jsonReader) skip() error {
	depth := 0
	for {
		c, err := j.token()
		if err != nil {
			return err
		}
		switch c {
		case '{', '[':
			if depth++; depth > maxNested {
				return j.errorf("values nested more than %d deep", maxNested)
			}
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return j.errorf("%q where a value was expected", c)
			}
		case ',', ':':
			if depth == 0 {
				return j.errorf("%q where a value was expected", c)
			}
			continue
		case '"':
			err = j.skipText()
		default:
			err = j.skipWord(c)
		}
		if err != nil {
			return err
		}
		if depth == 0 {
			return nil
		}
	}
}

// skipText skips the rest of a string after its quotation mark.
func (j *jsonReader) skipText() error {
	for {
		c, err := j.byte()
		if err == nil && c == '\\' {
			_, err = j.byte()
		}
		if err != nil || c == '"' {
			return err
		}
	}
}

// skipWord skips the rest of a number, true, false or null.
func (j *jsonReader) skipWord(c byte) error {
	for isNumber(c) || 'a' <= c && c <= 'z' {
		var err error
		if c, err = j.byte(); err != nil {
			return err
		}
		if !isNumber(c) && (c < 'a' || c > 'z') {
			j.back()
			return nil
		}
	}
	return j.errorf("%q where a value was expected", c)
}
