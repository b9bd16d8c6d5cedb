package unwind

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"fulgur/internal/symbols/elffile"
)

// A window finds the same addresses as a search of the whole code, wherever the window starts
// and ends.
func TestCodeWindow(t *testing.T) {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.New(file, info.Size(), "test")
	if err != nil {
		t.Fatal(err)
	}
	code := newCodeRanges(f)
	s := code.segments[0]
	size := min(s.Size, 3*windowSize+windowSize/2)
	whole := make([]byte, size)
	off, _ := f.Offset(s.Addr)
	if _, err := file.ReadAt(whole, int64(off)); err != nil {
		t.Fatal(err)
	}
	// One match crosses the window's end, and there are many others.
	what := whole[windowSize-1 : windowSize+1]
	for _, step := range []uint64{size, windowSize - 1, 4099, 61} {
		w := newCodeWindow(f, code)
		var got, want []uint64
		for start := uint64(0); start < size; start += step {
			end := min(start+step, size)
			w.find(s.Addr+start, s.Addr+end, what, func(at uint64) { got = append(got, at-s.Addr) })
			for from := start; ; {
				i := bytes.Index(whole[from:end], what)
				if i < 0 {
					break
				}
				want = append(want, from+uint64(i))
				from += uint64(i + len(what))
			}
		}
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("parts of %d bytes: got matches at %d places, want %d", step, len(got), len(want))
		}
	}
	// Nothing is found beyond the file's end.
	w := newCodeWindow(f, code)
	if got := w.at(0, 100); len(got) > 0 && s.Addr > 100 {
		t.Errorf("got %d bytes at an address without code, want 0", len(got))
	}
}
