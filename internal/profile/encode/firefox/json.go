package firefox

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
)

// jsonWriter streams JSON. It inserts commas. Errors stick to the buffer and are returned
// by flush.
type jsonWriter struct {
	w     *bufio.Writer
	comma bool // the current array or object already has a value
	buf   []byte
}

func newJSONWriter(w io.Writer) *jsonWriter {
	return &jsonWriter{w: bufio.NewWriterSize(w, 64<<10), buf: make([]byte, 0, 32)}
}

func (j *jsonWriter) flush() error { return j.w.Flush() }

// separate writes the comma before a value, if necessary.
func (j *jsonWriter) separate() {
	if j.comma {
		j.w.WriteByte(',')
	}
	j.comma = true
}

// begin opens an array or object; end closes it.
func (j *jsonWriter) begin(bracket byte) {
	j.separate()
	j.w.WriteByte(bracket)
	j.comma = false
}

func (j *jsonWriter) end(bracket byte) {
	j.w.WriteByte(bracket)
	j.comma = true
}

// object and array write the output of body as an object or array.
func (j *jsonWriter) object(body func()) {
	j.begin('{')
	body()
	j.end('}')
}

func (j *jsonWriter) array(body func()) {
	j.begin('[')
	body()
	j.end(']')
}

// key begins a member of an object. Its value must follow.
func (j *jsonWriter) key(name string) {
	j.separate()
	j.w.WriteByte('"')
	j.w.WriteString(name)
	j.w.WriteString(`":`)
	j.comma = false
}

// raw writes a value that is already JSON.
func (j *jsonWriter) raw(value string) {
	j.separate()
	j.w.WriteString(value)
}

func (j *jsonWriter) null() { j.raw("null") }

// string writes a string. It replaces invalid UTF-8.
func (j *jsonWriter) string(s string) {
	j.separate()
	b, _ := json.Marshal(s) // cannot fail
	j.w.Write(b)
}

func (j *jsonWriter) int(n int64) {
	j.separate()
	j.w.Write(strconv.AppendInt(j.buf[:0], n, 10))
}

// orNull writes n, or null if it is negative.
func (j *jsonWriter) orNull(n int64) {
	if n < 0 {
		j.null()
		return
	}
	j.int(n)
}

func (j *jsonWriter) bool(b bool) { j.raw(strconv.FormatBool(b)) }

// ms writes nanoseconds as milliseconds without rounding.
func (j *jsonWriter) ms(ns int64) {
	j.separate()
	j.w.Write(appendMillis(j.buf[:0], ns))
}

// appendMillis appends ns nanoseconds as milliseconds.
func appendMillis(b []byte, ns int64) []byte {
	n := uint64(ns)
	if ns < 0 {
		b = append(b, '-')
		n = -n
	}
	b = strconv.AppendUint(b, n/1e6, 10)
	rest := n % 1e6
	if rest == 0 {
		return b
	}
	b = append(b, '.')
	for unit := uint64(1e5); rest > 0; unit /= 10 {
		b = append(b, byte('0'+rest/unit))
		rest %= unit
	}
	return b
}

// value writes the encoding/json form of v, which must not fail.
func (j *jsonWriter) value(v any) {
	j.separate()
	b, _ := json.Marshal(v) // cannot fail for plain structures
	j.w.Write(b)
}

// member writes a member with a small value.
func (j *jsonWriter) member(name string, v any) {
	j.key(name)
	j.value(v)
}

// column writes a member that is an array of n values. at writes the value of row i.
func (j *jsonWriter) column(name string, n int, at func(i int)) {
	j.key(name)
	j.begin('[')
	for i := range n {
		at(i)
	}
	j.end(']')
}
