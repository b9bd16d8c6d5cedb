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

// countingReader counts the bytes read.
type countingReader struct {
	io.ReaderAt
	read atomic.Int64 // updated by several goroutines
}

func (r *countingReader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	r.read.Add(int64(n))
	return n, err
}

// FuzzProgram looks up the code of generated programs with DWARF. Functions and lines of an
// undamaged program must match the generator's. For a damaged one, frames must keep the order
// of inlined calls, and a lookup must not read much more than the size of the file.
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
			return // more choices than a program uses
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
		for range 2 { // the second round reads whole functions
			frames, err := e.LookupBatch(addrs)
			if len(frames) != len(addrs) {
				t.Fatalf("got %d results, want %d", len(frames), len(addrs))
			}
			if !p.Damaged && err != nil {
				t.Fatal(err)
			}
			for i, fs := range frames {
				if !p.Damaged {
					checkPlaces(t, addrs[i], fs, p.At(addrs[i]))
				}
				if len(fs) > 0 && fs[len(fs)-1].Inlined || slices.ContainsFunc(fs[:max(len(fs)-1, 0)], func(f Frame) bool { return !f.Inlined }) {
					t.Fatalf("%#x: got %+v, want all but the outermost frame inlined", addrs[i], fs)
				}
			}
		}
		if limit := int64(1<<20 + 100*len(p.Bytes)); in.read.Load() > limit {
			t.Fatalf("got %d bytes read from a file of %d", in.read.Load(), len(p.Bytes))
		}
	})
}

// checkPlaces compares frames with the generator's for addr.
func checkPlaces(t *testing.T, addr uint64, frames []Frame, want []elftest.Place) {
	t.Helper()
	var got []elftest.Place
	for _, f := range frames {
		if f.File != elftest.SourceFile {
			t.Fatalf("%#x: got file %q, want %q", addr, f.File, elftest.SourceFile)
		}
		got = append(got, elftest.Place{Name: f.Name, Line: f.Line})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%#x: (-want +got)\n%s", addr, diff)
	}
}
