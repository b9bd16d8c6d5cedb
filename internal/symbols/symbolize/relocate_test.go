package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
)

// newRelocated returns contents with x86-64 relocations applied, for symbols at the given
// addresses.
func newRelocated(t testing.TB, contents, relas []byte, symbols ...uint64) (*relocated, error) {
	t.Helper()
	image := elftest.File{}.Bytes()
	file, err := elffile.New(bytes.NewReader(image), int64(len(image)), "test")
	if err != nil {
		t.Fatal(err)
	}
	r := &relocated{
		Section: bytes.NewReader(contents),
		by:      &relocator{file: file, symbols: symbols},
		relas:   io.NewSectionReader(bytes.NewReader(relas), 0, int64(len(relas))),
		count:   len(relas) / relaSize,
	}
	err = r.index(&elffile.Section{Name: ".rela.test"})
	return r, err
}

// rela returns a relocation.
func rela(offset uint64, typ elf.R_X86_64, symbol uint32, addend uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, offset)
	b = binary.LittleEndian.AppendUint64(b, uint64(symbol)<<32|uint64(typ))
	return binary.LittleEndian.AppendUint64(b, addend)
}

func TestRelocated(t *testing.T) {
	relas := slices.Concat(
		rela(2, elf.R_X86_64_64, 1, 1),
		rela(12, elf.R_X86_64_32, 0, 0x44332211),
		rela(17, elf.R_X86_64_64, 9, 1),    // unknown symbol
		rela(18, elf.R_X86_64_PC32, 1, 1),  // a type that debug sections do not use
		rela(28, elf.R_X86_64_64, 1, 1),    // extends beyond the end
		rela(1<<40, elf.R_X86_64_64, 1, 1), // beyond the end
	)
	r, err := newRelocated(t, make([]byte, 32), relas, 0, 0x0807060504030200)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 32)
	copy(want[2:], []byte{1, 2, 3, 4, 5, 6, 7, 8})
	copy(want[12:], []byte{0x11, 0x22, 0x33, 0x44})
	copy(want[28:], []byte{1, 2, 3, 4})
	checkPieces(t, r, want)

	if _, err := newRelocated(t, nil, slices.Concat(rela(2, 1, 0, 0), rela(1, 1, 0, 0))); err == nil {
		t.Error("got no error for unsorted relocations")
	}
}

// checkPieces reads r as a whole and in pieces of all sizes.
func checkPieces(t *testing.T, r *relocated, want []byte) {
	t.Helper()
	for size := 1; size <= len(want); size++ {
		var got []byte
		for off := 0; off < len(want); off += size {
			b := make([]byte, min(size, len(want)-off))
			if _, err := r.ReadAt(b, int64(off)); err != nil {
				t.Fatal(err)
			}
			got = append(got, b...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: got % x, want % x", size, got, want)
		}
	}
}

func FuzzRelocated(f *testing.F) {
	f.Add(make([]byte, 20), slices.Concat(rela(2, elf.R_X86_64_64, 1, 1), rela(12, elf.R_X86_64_32, 0, 5)), uint64(7))
	f.Fuzz(func(t *testing.T, contents, relas []byte, symbol uint64) {
		contents = contents[:min(len(contents), 64)]
		r, err := newRelocated(t, contents, relas, 0, symbol)
		if err != nil || len(contents) == 0 {
			return
		}
		whole := make([]byte, len(contents))
		if _, err := r.ReadAt(whole, 0); err != nil {
			t.Fatal(err)
		}
		// Each piece applies overlapping relocations in order, so that all pieces agree.
		checkPieces(t, r, whole)
	})
}
