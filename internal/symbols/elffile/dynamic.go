package elffile

import (
	"debug/elf"
	"encoding/binary"
)

const (
	// maxChain bounds the symbols of one bucket of a hash table. Linkers aim at a few
	// symbols.
	maxChain = 1 << 12
	// maxUnhashed bounds the symbols that are compared one by one. Files without a hash
	// table are old or made by hand.
	maxUnhashed = 1 << 18
)

// DynamicSymbol looks up a symbol that the file exports. It uses the hash table for the
// dynamic loader (DT_GNU_HASH). Without one, it compares the symbols one by one, up to a
// limit. It reports false if there is none, or if the file has no dynamic symbols.
//
// The format of the table is described in the documentation of GNU binutils' ELF hash
// section, and in glibc's elf/dl-lookup.c.
func (f *File) DynamicSymbol(name string) (Symbol, bool, error) {
	s, index, err := f.DynamicSymbolIndex(name)
	return s, index != 0, err
}

// DynamicSymbolIndex is like [File.DynamicSymbol]. It also returns the symbol's index in the table
// of dynamic symbols, which relocations refer to, or 0 if there is none.
func (f *File) DynamicSymbolIndex(name string) (s Symbol, index uint32, err error) {
	sections, err := f.Sections()
	if err != nil {
		return s, 0, err
	}
	var table, hash *Section
	for _, s := range sections {
		switch s.Type {
		case elf.SHT_DYNSYM:
			table = s
		case elf.SHT_GNU_HASH:
			hash = s
		}
	}
	if table == nil || table.Size == 0 {
		return s, 0, nil
	}
	names := f.SymbolNames(table)
	if names == nil {
		return s, 0, nil
	}
	is := func(s Symbol) bool {
		return s.Section != elf.SHN_UNDEF && string(names.At(uint64(s.Name))) == name
	}
	if hash != nil && f.is64 {
		return f.hashed(table, hash, name, is)
	}
	var seen uint32
	err = f.EachSymbol(table, func(at Symbol) bool {
		if is(at) {
			s, index = at, seen
		}
		seen++
		return index == 0 && seen < maxUnhashed
	})
	return s, index, err
}

// hashed looks a symbol up in a 64-bit hash table. Its index is 0 if there is none.
func (f *File) hashed(table, hash *Section, name string, is func(Symbol) bool) (Symbol, uint32, error) {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h*33 + uint32(c)
	}
	le := binary.LittleEndian
	word := func(at uint64) (uint32, error) {
		if at > hash.Size-4 || hash.Size < 4 {
			return 0, hash.errorf("hash table of symbols ends too early")
		}
		b, err := f.Bytes(int64(hash.Offset+at), 4, "hash table of symbols")
		if err != nil {
			return 0, err
		}
		return le.Uint32(b), nil
	}
	if hash.Size < 16 {
		return Symbol{}, 0, hash.errorf("hash table of symbols ends too early")
	}
	header, err := f.Bytes(int64(hash.Offset), 16, "hash table of symbols")
	if err != nil {
		return Symbol{}, 0, err
	}
	buckets, first, blooms, shift := le.Uint32(header), le.Uint32(header[4:]), le.Uint32(header[8:]), le.Uint32(header[12:])
	if buckets == 0 || blooms == 0 {
		return Symbol{}, 0, nil
	}
	bloom := 16 + 8*uint64(h/64%blooms)
	for _, bit := range []uint32{h % 64, h >> (shift % 32) % 64} {
		w, err := word(bloom + 4*uint64(bit/32))
		if err != nil || w>>(bit%32)&1 == 0 {
			return Symbol{}, 0, err
		}
	}
	bucket := 16 + 8*uint64(blooms)
	i, err := word(bucket + 4*uint64(h%buckets))
	if err != nil || i < first {
		return Symbol{}, 0, err
	}
	chain := bucket + 4*uint64(buckets)
	for range maxChain {
		w, err := word(chain + 4*uint64(i-first))
		if err != nil {
			return Symbol{}, 0, err
		}
		if w|1 == h|1 {
			s, err := f.symbolAt(table, uint64(i))
			if err != nil {
				return Symbol{}, 0, err
			}
			if is(s) {
				return s, i, nil
			}
		}
		if w&1 != 0 {
			break
		}
		i++
	}
	return Symbol{}, 0, nil
}
