package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
)

// gnuHash returns the hash of a name in a DT_GNU_HASH table.
func gnuHash(name string) uint32 {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h<<5 + h + uint32(c)
	}
	return h
}

// hashTable returns a .gnu.hash section for the symbols from index first of .dynsym on,
// which it sorts by bucket.
func hashTable(symbols []elftest.Symbol, first, buckets, blooms, shift uint32) []byte {
	slices.SortStableFunc(symbols, func(a, b elftest.Symbol) int {
		return int(gnuHash(a.Name)%buckets) - int(gnuHash(b.Name)%buckets)
	})
	bloom, starts, chain := make([]uint64, blooms), make([]uint32, buckets), make([]uint32, len(symbols))
	for i, s := range symbols {
		h := gnuHash(s.Name)
		bloom[h/64%blooms] |= 1<<(h%64) | 1<<(h>>shift%64)
		if at := &starts[h%buckets]; *at == 0 {
			*at = first + uint32(i)
		}
		chain[i] = h &^ 1
		if i+1 == len(symbols) || gnuHash(symbols[i+1].Name)%buckets != h%buckets {
			chain[i] |= 1
		}
	}
	b := elftest.Struct([]uint32{buckets, first, blooms, shift})
	return slices.Concat(b, elftest.Struct(bloom), elftest.Struct(starts), elftest.Struct(chain))
}

// FuzzDynamicSymbol looks up symbols in hash tables of many shapes. The result must equal a
// linear search's; in damaged tables, symbols may be missing.
func FuzzDynamicSymbol(f *testing.F) {
	for shape := range byte(8) { // buckets, words of the Bloom filter, its shift, symbols
		seed := []byte{shape, shape, 26 - shape, 3, 1, 2, 3, 29}
		for i := range byte(29) {
			seed = append(seed, i+shape)
		}
		f.Add(seed, uint16(0), uint32(0))
		f.Add(seed, 4*uint16(shape), uint32(0x101))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16, damage uint32) {
		choices := elftest.NewChoices(data)
		buckets, blooms, shift := uint32(1+choices.Below(8)), uint32(1)<<choices.Below(4), uint32(choices.Below(32))
		symbols := make([]elftest.Symbol, choices.Below(4)) // undefined symbols are not in the hash table
		for i := range symbols {
			symbols[i] = elftest.Symbol{Name: fmt.Sprint("name", choices.Below(40))}
		}
		first := uint32(len(symbols) + 1)
		exported := make([]elftest.Symbol, choices.Below(30))
		for i := range exported {
			exported[i] = elftest.Symbol{Name: fmt.Sprint("name", choices.Below(40)), Section: 1, Value: uint64(i + 1)}
		}
		hash := hashTable(exported, first, buckets, blooms, shift)
		if int(at)+4 <= len(hash) {
			word := hash[at:]
			binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)^damage)
		}
		table, names := elftest.Symbols(elf.SHT_DYNSYM, 2, append(symbols, exported...)...)
		b := elftest.File{Sections: []elftest.Section{table, names, {Name: ".gnu.hash", Type: elf.SHT_GNU_HASH, Content: hash}}}.Bytes()
		file, err := New(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for i := range 41 {
			name := fmt.Sprint("name", i)
			values := map[uint64]bool{}
			for _, s := range exported {
				if s.Name == name {
					values[s.Value] = true
				}
			}
			s, ok, err := file.DynamicSymbol(name)
			if ok && (!values[s.Value] || err != nil) || damage == 0 && (err != nil || ok != (len(values) > 0)) {
				t.Errorf("%s: got %+v, %v, %v, want one of %v", name, s, ok, err, values)
			}
		}
	})
}
