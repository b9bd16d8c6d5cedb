package firefox

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
)

// jsonWriter writes JSON without holding it in memory. It puts the commas
// itself. Errors stick to the buffer and are returned by flush.
type jsonWriter struct {
	w     *bufio.Writer
	comma bool // a value was written before in the array or object at hand
	buf   []byte
}

func newJSONWriter(w io.Writer) *jsonWriter {
	return &jsonWriter{w: bufio.NewWriterSize(w, 64<<10), buf: make([]byte, 0, 32)}
}

func (j *jsonWriter) flush() error { return j.w.Flush() }

// separate writes the comma before a value, if there is one before it.
func (j *jsonWriter) separate() {
	if j.comma {
		j.w.WriteByte(',')
	}
	j.comma = true
}

// begin opens an array or object, and end closes it.
func (j *jsonWriter) begin(bracket byte) {
	j.separate()
	j.w.WriteByte(bracket)
	j.comma = false
}

func (j *jsonWriter) end(bracket byte) {
	j.w.WriteByte(bracket)
	j.comma = true
}

// object and array write what body writes as an object or array.
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

// key begins a member of an object. Its value follows.
func (j *jsonWriter) key(name string) {
	j.separate()
	j.w.WriteByte('"')
	j.w.WriteString(name)
	j.w.WriteString(`":`)
	j.comma = false
}

// raw writes a value that is JSON already.
func (j *jsonWriter) raw(value string) {
	j.separate()
	j.w.WriteString(value)
}

func (j *jsonWriter) null() { j.raw("null") }

// string writes text. What is not UTF-8 in it is replaced.
func (j *jsonWriter) string(s string) {
	j.separate()
	b, _ := json.Marshal(s) // a string has no way to fail
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

// ms writes nanoseconds as milliseconds, without rounding.
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

// value writes what encoding/json makes of v, which must be able to.
func (j *jsonWriter) value(v any) {
	j.separate()
	b, _ := json.Marshal(v) // of plain structures: has no way to fail
	j.w.Write(b)
}

// member writes a member of an object whose value is small.
func (j *jsonWriter) member(name string, v any) {
	j.key(name)
	j.value(v)
}

// column writes n values as a member that is an array; at writes the value of
// row i.
func (j *jsonWriter) column(name string, n int, at func(i int)) {
	j.key(name)
	j.begin('[')
	for i := range n {
		at(i)
	}
	j.end(']')
}
