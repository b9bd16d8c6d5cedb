package symbolize

import (
	"fmt"
	"io"
)

// PerfMap is a [Table] of JIT-compiled code, with addresses of its process. It reads
// /tmp/perf-PID.map (Linux, tools/perf/Documentation/jit-interface.txt): a line for each
// function with its start and size in hexadecimal and its name, which may contain spaces.
// The numbers may begin with 0x, as in maps of the JDK; perf accepts those too.
type PerfMap struct {
	r     io.ReaderAt
	limit int64
}

// OpenPerfMap returns the table in r, and reads at most limit bytes of it. Every lookup
// reads the map again, so functions added by then are found.
func OpenPerfMap(r io.ReaderAt, limit int64) *PerfMap { return &PerfMap{r, limit} }

// PerfMapError reports that a perf map was only partially usable.
type PerfMapError struct {
	// Malformed is the number of malformed lines.
	Malformed int
	// Truncated is the number of bytes after which the limit stopped reading, or 0.
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

// LookupBatch implements [Table]. If functions overlap, the last one in the map wins: the
// compiler reused the memory of older code. The error is a [*PerfMapError] if only part
// of the map could be used.
func (m *PerfMap) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	g := gaps{addrs: addrs}
	var problems PerfMapError
	r := &tail{r: io.NewSectionReader(m.r, 0, m.limit)}
	good := true // whether the last line is well-formed
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
				// The compiler writes names in the form to be shown.
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
		problems.Malformed-- // the line is still being written
	}
	if n, _ := m.r.ReadAt(make([]byte, 1), m.limit); n > 0 {
		problems.Truncated = m.limit
	}
	if problems != (PerfMapError{}) {
		return frames, &problems
	}
	return frames, nil
}

// withoutPrefix removes the 0x from the number at the start of line.
func withoutPrefix(line []byte) []byte {
	if len(line) > 2 && line[0] == '0' && (line[1] == 'x' || line[1] == 'X') && line[2] != ' ' {
		return line[2:]
	}
	return line
}

// tail is a reader that remembers the last byte read.
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
