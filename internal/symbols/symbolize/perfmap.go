package symbolize

import (
	"fmt"
	"io"
)

// PerfMap is a [Table] of code that a JIT compiler made, on running addresses
// of its process. It reads /tmp/perf-PID.map (Linux,
// tools/perf/Documentation/jit-interface.txt): a line for each function with
// its start and size in hexadecimal and its name, which may contain spaces. The
// numbers may begin with 0x, as in maps of the JDK; perf reads those too.
type PerfMap struct {
	r     io.ReaderAt
	limit int64
}

// OpenPerfMap returns the table in r, of which at most limit bytes are read.
// The map is read when names are asked for, so that functions which the
// process adds until then are found.
func OpenPerfMap(r io.ReaderAt, limit int64) *PerfMap { return &PerfMap{r, limit} }

// PerfMapError says that a perf map could be read only in part.
type PerfMapError struct {
	// Malformed counts the lines that are none of a perf map.
	Malformed int
	// Truncated is the number of bytes after which reading stopped because
	// of the limit, or 0.
	Truncated int64
}

// Error implements error.
func (e *PerfMapError) Error() string {
	switch {
	case e.Truncated == 0:
		return fmt.Sprintf("perf map has %d malformed lines", e.Malformed)
	case e.Malformed == 0:
		return fmt.Sprintf("perf map is too large: only its first %d bytes were read", e.Truncated)
	}
	return fmt.Sprintf("perf map is too large: only its first %d bytes were read, with %d malformed lines", e.Truncated, e.Malformed)
}

// LookupBatch implements [Table]. Of functions that overlap, the one written
// last is taken: the compiler put it where older code had been freed. The
// error is a [*PerfMapError] if only part of the map could be used.
func (m *PerfMap) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	g := gaps{addrs: addrs}
	var problems PerfMapError
	r := &tail{r: io.NewSectionReader(m.r, 0, m.limit)}
	good := true // the last line
	err := eachLine(r, func(line []byte) bool {
		start, rest, ok := cutHex(withoutPrefix(line))
		var size uint64
		var name []byte
		if ok {
			size, name, ok = cutHex(withoutPrefix(rest))
		}
		if good = ok && len(name) > 0; !good {
			problems.Malformed++
			return true
		}
		var f Frame
		for i := g.after(start); i < len(addrs) && addrs[i]-start < size; i++ {
			if f.Name == "" {
				// The compiler writes names as it wants them shown.
				f = NewFrame(name[:min(len(name), maxName)], 0, Options{NoDemangle: true})
			}
			f.Offset = addrs[i] - start
			frames[i] = []Frame{f}
		}
		return true
	})
	if err != nil {
		return frames, fmt.Errorf("reading perf map: %w", err)
	}
	if !good && r.last != '\n' {
		problems.Malformed-- // it is being written
	}
	if n, _ := m.r.ReadAt(make([]byte, 1), m.limit); n > 0 {
		problems.Truncated = m.limit
	}
	if problems != (PerfMapError{}) {
		return frames, &problems
	}
	return frames, nil
}

// withoutPrefix returns line, which starts with a number, without the number's 0x.
func withoutPrefix(line []byte) []byte {
	if len(line) > 2 && line[0] == '0' && (line[1] == 'x' || line[1] == 'X') && line[2] != ' ' {
		return line[2:]
	}
	return line
}

// tail is a reader that knows the last byte that it read.
type tail struct {
	r    io.Reader
	last byte
}

func (t *tail) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	if n > 0 {
		t.last = b[n-1]
	}
	return n, err
}
