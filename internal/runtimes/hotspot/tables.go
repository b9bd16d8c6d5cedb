package hotspot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"fulgur/internal/runtimes"
)

// Limits on the tables. Real JVMs have about 800 fields and 1000 constants.
const (
	maxEntries = 1 << 12
	maxText    = 256
	maxPages   = 1 << 10
	maxStride  = 1 << 8
)

// tableSymbols are the symbols that describe HotSpot's tables; see vmStructs.hpp.
var tableSymbols = []string{
	"gHotSpotVMStructs", "gHotSpotVMStructEntryTypeNameOffset", "gHotSpotVMStructEntryFieldNameOffset",
	"gHotSpotVMStructEntryIsStaticOffset", "gHotSpotVMStructEntryOffsetOffset",
	"gHotSpotVMStructEntryAddressOffset", "gHotSpotVMStructEntryArrayStride",
	"gHotSpotVMTypes", "gHotSpotVMTypeEntryTypeNameOffset", "gHotSpotVMTypeEntrySizeOffset", "gHotSpotVMTypeEntryArrayStride",
	"gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntryNameOffset",
	"gHotSpotVMIntConstantEntryValueOffset", "gHotSpotVMIntConstantEntryArrayStride",
}

// pages reads the memory of a process by pages, and each page only once.
type pages struct {
	memory runtimes.Memory
	cache  map[uint64][]byte
}

// read returns n bytes at an address.
func (p *pages) read(addr uint64, n int) ([]byte, error) {
	size := uint64(os.Getpagesize())
	var b []byte
	for n > 0 {
		start := addr &^ (size - 1)
		page, ok := p.cache[start]
		if !ok {
			if len(p.cache) >= maxPages {
				return nil, fmt.Errorf("%w: tables of more than %d pages", errLayout, maxPages)
			}
			page = make([]byte, size)
			if err := p.memory.Read(page, start); err != nil {
				return nil, err
			}
			if p.cache == nil {
				p.cache = map[uint64][]byte{}
			}
			p.cache[start] = page
		}
		part := page[addr-start:]
		part = part[:min(n, len(part))]
		b = append(b, part...)
		addr += uint64(len(part))
		n -= len(part)
	}
	return b, nil
}

func (p *pages) word(addr uint64) (uint64, error) {
	b, err := p.read(addr, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// text returns a string that ends with a zero byte.
func (p *pages) text(addr uint64) (string, error) {
	var s []byte
	for len(s) < maxText {
		b, err := p.read(addr+uint64(len(s)), int(32-(addr+uint64(len(s)))%32))
		if err != nil {
			return "", err
		}
		if text, _, ok := bytes.Cut(b, []byte{0}); ok {
			return string(append(s, text...)), nil
		}
		s = append(s, b...)
	}
	return "", fmt.Errorf("%w: a name of more than %d bytes", errLayout, maxText)
}

// tables are the tables of HotSpot in a process.
type tables struct {
	pages
	addresses map[string]uint64 // of tableSymbols, at link time
	bias      uint64
}

// description is the contents of the tables.
type description struct {
	tables
	fields    map[string]int    // offsets, by type and field
	statics   map[string]uint64 // addresses
	sizes     map[string]int    // by type
	constants map[string]int
}

// read reads the tables.
func (t tables) read() (*description, error) {
	d := &description{tables: t, fields: map[string]int{}, statics: map[string]uint64{}, sizes: map[string]int{}, constants: map[string]int{}}
	symbols := map[string]uint64{}
	for _, name := range tableSymbols {
		w, err := d.word(t.addresses[name] + t.bias)
		if err != nil {
			return nil, err
		}
		symbols[name] = w
	}
	if err := d.each(symbols, "gHotSpotVMStruct", "gHotSpotVMStructs", "TypeName", func(name string, entry []byte, at func(string) uint64) error {
		field, err := d.text(binary.LittleEndian.Uint64(entry[at("FieldName"):]))
		if err != nil {
			return err
		}
		name += "." + field
		if binary.LittleEndian.Uint32(entry[at("IsStatic"):]) != 0 {
			d.statics[name] = binary.LittleEndian.Uint64(entry[at("Address"):])
		} else {
			d.fields[name] = int(int32(binary.LittleEndian.Uint64(entry[at("Offset"):])))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := d.each(symbols, "gHotSpotVMType", "gHotSpotVMTypes", "TypeName", func(name string, entry []byte, at func(string) uint64) error {
		d.sizes[name] = int(int32(binary.LittleEndian.Uint64(entry[at("Size"):])))
		return nil
	}); err != nil {
		return nil, err
	}
	err := d.each(symbols, "gHotSpotVMIntConstant", "gHotSpotVMIntConstants", "Name", func(name string, entry []byte, at func(string) uint64) error {
		d.constants[name] = int(int32(binary.LittleEndian.Uint32(entry[at("Value"):])))
		return nil
	})
	return d, err
}

// each calls yield with the name and bytes of each entry of a table. at returns the offset
// of a field of entries.
func (d *description) each(symbols map[string]uint64, prefix, table, name string, yield func(name string, entry []byte, at func(string) uint64) error) error {
	stride := symbols[prefix+"EntryArrayStride"]
	if stride < 16 || stride > maxStride {
		return fmt.Errorf("%w: entries of %d bytes", errLayout, stride)
	}
	at := func(field string) uint64 { return min(symbols[prefix+"Entry"+field+"Offset"], stride-8) }
	for i := range uint64(maxEntries) {
		entry, err := d.pages.read(symbols[table]+i*stride, int(stride))
		if err != nil {
			return err
		}
		text := binary.LittleEndian.Uint64(entry[at(name):])
		if text == 0 {
			return nil
		}
		s, err := d.text(text)
		if err != nil {
			return err
		}
		if err := yield(s, entry, at); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: a table of more than %d entries", errLayout, maxEntries)
}

// static returns a static variable.
func (d *description) static(name string) (uint64, error) {
	addr, ok := d.statics[name]
	if !ok {
		return 0, fmt.Errorf("%w: no %s", errLayout, name)
	}
	return d.current(addr)
}

// current reads a word that may change, unlike the words of the tables, and so bypasses the
// cache.
func (d *description) current(addr uint64) (uint64, error) {
	var b [8]byte
	err := d.memory.Read(b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), err
}

func (d *description) staticInt(name string) (int, error) {
	w, err := d.static(name)
	return int(int32(w)), err
}
