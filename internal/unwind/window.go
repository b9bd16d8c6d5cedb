package unwind

import (
	"bytes"
	"sync"

	"fulgur/internal/symbols/elffile"
)

// windowSize is the number of bytes of code to read at once.
const windowSize = 64 << 10

// codeWindow searches code in ascending order of addresses. Most of the searched ranges are
// padding between two functions. Reading each of them separately would take a third of the
// time to compile a table.
type codeWindow struct {
	file *elffile.File
	code *codeRanges
	buf  *[windowSize]byte
	// read is the code from address addr on, in buf.
	read []byte
	addr uint64
}

// windowBuffers keeps the memory of closed windows.
var windowBuffers = sync.Pool{New: func() any { return new([windowSize]byte) }}

func newCodeWindow(f *elffile.File, code *codeRanges) *codeWindow {
	return &codeWindow{file: f, code: code, buf: windowBuffers.Get().(*[windowSize]byte)}
}

// close releases the window's memory for the next window.
func (w *codeWindow) close() { windowBuffers.Put(w.buf) }

// at returns the code from start to end, limited by the window's size and the file's end.
func (w *codeWindow) at(start, end uint64) []byte {
	end = min(end, start+windowSize)
	if start < w.addr || end > w.addr+uint64(len(w.read)) {
		w.read, w.addr = nil, start
		limit, ok := w.code.end(start)
		off, mapped := w.file.Offset(start)
		if !ok || !mapped {
			return nil
		}
		// Unreadable code contains no match.
		n, _ := w.file.Reader().ReadAt(w.buf[:min(windowSize, limit-start)], int64(off))
		w.read = w.buf[:n]
	}
	have := w.addr + uint64(len(w.read))
	return w.read[min(start, have)-w.addr : min(end, have)-w.addr]
}

// find calls yield with each address from start to end at which the code matches pattern.
func (w *codeWindow) find(start, end uint64, pattern []byte, yield func(addr uint64)) {
	for start+uint64(len(pattern)) <= end {
		code := w.at(start, end)
		if len(code) < len(pattern) {
			return
		}
		from := 0
		for {
			i := bytes.Index(code[from:], pattern)
			if i < 0 {
				break
			}
			yield(start + uint64(from+i))
			from += i + len(pattern)
		}
		// A match across the window's end begins in its last bytes.
		start += uint64(max(from, len(code)-len(pattern)+1))
	}
}
