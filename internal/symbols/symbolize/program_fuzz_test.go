package symbolize

import (
	"bytes"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/elffile/elftest"
)

// countingReader counts the bytes that are read.
type countingReader struct {
	io.ReaderAt
	read atomic.Int64 // by several goroutines
}

func (r *countingReader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	r.read.Add(int64(n))
	return n, err
}

// FuzzProgram names the code of whole programs with DWARF. The functions and
// lines of an undamaged one must be the generator's; a damaged one must keep the
// order of inlined calls, and must not make a look-up read much more than the
// file has.
func FuzzProgram(f *testing.F) {
	f.Add([]byte{})
	for seed := byte(1); seed < 8; seed++ {
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(i*i)*seed + seed
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return // more decisions than a program has
		}
		p := elftest.NewProgram(elftest.NewChoices(data))
		in := &countingReader{ReaderAt: bytes.NewReader(p.Bytes)}
		e, err := OpenELF(in, int64(len(p.Bytes)), "fuzz", Options{})
		if err != nil {
			if !p.Damaged {
				t.Fatal(err)
			}
			return
		}
		defer e.Close()
		var addrs []uint64
		for addr := uint64(elftest.ProgramCode) - 1; addr < p.CodeEnd+2; addr += 3 {
			addrs = append(addrs, addr)
		}
		for range 2 { // the second time, whole functions are read
			frames, err := e.LookupBatch(addrs)
			if len(frames) != len(addrs) {
				t.Fatalf("%d results for %d addresses", len(frames), len(addrs))
			}
			if !p.Damaged && err != nil {
				t.Fatal(err)
			}
			for i, fs := range frames {
				if !p.Damaged {
					checkPlaces(t, addrs[i], fs, p.At(addrs[i]))
				}
				if len(fs) > 0 && fs[len(fs)-1].Inlined || slices.ContainsFunc(fs[:max(len(fs)-1, 0)], func(f Frame) bool { return !f.Inlined }) {
					t.Fatalf("%#x: the outermost frame alone is not inlined, got %+v", addrs[i], fs)
				}
			}
		}
		if limit := int64(1<<20 + 100*len(p.Bytes)); in.read.Load() > limit {
			t.Fatalf("read %d bytes of a file of %d", in.read.Load(), len(p.Bytes))
		}
	})
}

// checkPlaces compares frames with what the generator wrote for addr.
func checkPlaces(t *testing.T, addr uint64, frames []Frame, want []elftest.Place) {
	t.Helper()
	var got []elftest.Place
	for _, f := range frames {
		if f.File != elftest.SourceFile {
			t.Fatalf("%#x: file %q", addr, f.File)
		}
		got = append(got, elftest.Place{Name: f.Name, Line: f.Line})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%#x: (-want +got)\n%s", addr, diff)
	}
}
