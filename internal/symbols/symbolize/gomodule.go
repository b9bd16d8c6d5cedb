package symbolize

import (
	"debug/elf"
	"encoding/binary"
	"slices"

	"fulgur/internal/symbols/elffile"
)

// The module data (runtime/symtab.go: moduledata) locates the code and the inlined calls of a
// pclntab. Nothing in a stripped file points to it. But it begins with a pointer to the
// pclntab, and enough of the next fields are known to distinguish it from other such
// pointers. The layout of the fields below is the same from Go 1.18 to 1.26. gofunc, which
// comes later in the structure, has had its place since 1.20.

// Fields of moduledata, in words.
const (
	moduleHeader = 0
	moduleNames  = 1  // a slice
	moduleFuncs  = 13 // a slice
	moduleMinPC  = 20
	moduleMaxPC  = 21
	moduleText   = 22
	moduleWords  = 41 // number of words to read
)

// maxModules bounds the pointers to a pclntab to try. Only the module data should have one.
const maxModules = 16

// goTableSection returns the section with Go's function table, or nil.
func goTableSection(f *elffile.File) *elffile.Section {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.Section(name); s != nil {
			return s
		}
	}
	// When the system's linker creates a position-independent file from Go and C, it
	// merges the table with other read-only data, up to Go 1.25.
	if f.Section(".go.buildinfo") == nil {
		return nil
	}
	if s := f.Section(".data.rel.ro"); s != nil {
		return searchGoTable(f, s)
	}
	return nil
}

// searchGoTable returns the part of s that starts with a pclntab, or nil if there is
// none.
func searchGoTable(f *elffile.File, s *elffile.Section) (found *elffile.Section) {
	const align = 32 // of a pclntab
	_ = eachChunk(f, s, align, func(addr uint64, b []byte) bool {
		for i := 0; i+align <= len(b); i += align {
			magic := binary.LittleEndian.Uint32(b[i:])
			if goLayouts[magic] == nil || b[i+4] != 0 || b[i+5] != 0 || int(b[i+7]) != f.WordSize() {
				continue
			}
			skip := addr + uint64(i) - s.Addr
			part := *s
			part.Addr, part.Offset, part.Size = s.Addr+skip, s.Offset+skip, s.Size-skip
			found = &part
			return false
		}
		return true
	})
	return found
}

// eachChunk calls yield with the contents of s, in chunks that begin at multiples of
// align, until yield returns false.
func eachChunk(f *elffile.File, s *elffile.Section, align uint64, yield func(addr uint64, b []byte) bool) error {
	buf := make([]byte, 64<<10)
	for skip := -s.Addr % align; skip < s.Size; skip += uint64(len(buf)) {
		b := buf[:min(uint64(len(buf)), s.Size-skip)]
		if err := f.ReadFull(b, int64(s.Offset+skip), s.Name); err != nil {
			return err
		}
		if !yield(s.Addr+skip, b) {
			return nil
		}
	}
	return nil
}

// findModule finds the module data. Without it, up to Go 1.25, the header provides the
// start of the text, and only the inlined calls are unavailable.
func (t *goTable) findModule(headerText uint64) error {
	relocated, err := t.relocatedPointers()
	if err != nil {
		return err
	}
	if found, err := t.tryModules(relocated); err != nil || found {
		return err
	}
	sections, err := t.f.Sections()
	if err != nil {
		return err
	}
	left := uint64(t.f.Size()) // sections of crafted files may overlap
	for _, s := range moduleSections(sections) {
		if s.Size > left {
			break
		}
		left -= s.Size
		if found, err := t.tryModules(t.pointers(s)); err != nil || found {
			return err
		}
	}
	textField := t.addr + 8 + 2*uint64(t.f.WordSize())
	words := []moduleCandidate{{addr: textField, words: []uint64{headerText}}}
	if err := t.relocate(words); err != nil {
		return err
	}
	if t.text = words[0].words[0]; t.text == 0 {
		return t.f.Errorf(int64(t.off), "Go pclntab whose module data, which locates the code, was not found")
	}
	return nil
}

// moduleSections returns the sections that may contain module data, likely ones first:
// its own section since Go 1.26, then where it was before.
func moduleSections(sections []*elffile.Section) []*elffile.Section {
	var likely, others []*elffile.Section
	for _, s := range sections {
		switch {
		case s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_WRITE == 0:
		case s.Name == ".go.module" || s.Name == ".noptrdata":
			likely = append(likely, s)
		default:
			others = append(others, s)
		}
	}
	return append(likely, others...)
}

// relativeRelocation returns the type of relocations that add the load address to an
// addend. It reports false if the file has none.
func (t *goTable) relativeRelocation() (uint32, bool) {
	if t.f.Type() == elf.ET_DYN {
		switch t.f.Machine() {
		case elf.EM_X86_64:
			return uint32(elf.R_X86_64_RELATIVE), true
		case elf.EM_AARCH64:
			return uint32(elf.R_AARCH64_RELATIVE), true
		}
	}
	return 0, false
}

// relocatedPointers returns the addresses of pointers to the table that the loader
// writes.
func (t *goTable) relocatedPointers() ([]uint64, error) {
	relative, ok := t.relativeRelocation()
	if !ok {
		return nil, nil
	}
	var found []uint64
	err := t.f.EachRela(func(_ *elffile.Section, r elffile.Rela) bool {
		if r.Type == relative && uint64(r.Addend) == t.addr {
			found = append(found, r.Offset)
		}
		return len(found) < maxModules
	})
	return found, err
}

// pointers returns the addresses of the words in s that point to the table, as far as s is
// readable. It ignores unreadable parts, since the module data may be elsewhere.
func (t *goTable) pointers(s *elffile.Section) (found []uint64) {
	width := t.f.WordSize()
	_ = eachChunk(t.f, s, uint64(width), func(addr uint64, b []byte) bool {
		for i := 0; i+width <= len(b); i += width {
			if t.f.Word(b[i:]) == t.addr && len(found) < maxModules {
				found = append(found, addr+uint64(i))
			}
		}
		return len(found) < maxModules
	})
	return found
}

// moduleCandidate is a candidate for module data.
type moduleCandidate struct {
	addr  uint64
	words []uint64
}

// tryModules reads the text and the inlined calls from the first of addrs that is the
// table's module data.
func (t *goTable) tryModules(addrs []uint64) (found bool, err error) {
	width := uint64(t.f.WordSize())
	var candidates []moduleCandidate
	for _, addr := range addrs {
		off, ok := t.f.Offset(addr)
		if !ok {
			continue
		}
		b, err := t.f.Bytes(int64(off), moduleWords*width, "Go module data")
		if err != nil {
			continue // too short
		}
		c := moduleCandidate{addr, make([]uint64, moduleWords)}
		for i := range c.words {
			c.words[i] = t.f.Word(b[uint64(i)*width:])
		}
		candidates = append(candidates, c)
	}
	if len(candidates) == 0 {
		return false, nil
	}
	if err := t.relocate(candidates); err != nil {
		return false, err
	}
	first, err := t.entry(0)
	if err != nil {
		return false, err
	}
	end, err := t.entry(t.num)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(candidates, func(c moduleCandidate) bool {
		w := c.words
		return w[moduleHeader] == t.addr && w[moduleNames] == t.addr+t.names.off-t.off && w[moduleFuncs] == t.addr+t.funcs.off-t.off &&
			w[moduleText] != 0 && w[moduleMinPC] == w[moduleText]+uint64(first) && w[moduleMaxPC] == w[moduleText]+uint64(end)
	})
	if i < 0 {
		return false, nil
	}
	t.text, t.gofunc = candidates[i].words[moduleText], candidates[i].words[t.layout.gofunc]
	return true, nil
}

// relocate sets words to the values that the loader computes.
func (t *goTable) relocate(words []moduleCandidate) error {
	relative, ok := t.relativeRelocation()
	if !ok {
		return nil
	}
	width := uint64(t.f.WordSize())
	return t.f.EachRela(func(_ *elffile.Section, r elffile.Rela) bool {
		for _, c := range words {
			if i := (r.Offset - c.addr) / width; r.Type == relative && r.Offset >= c.addr && i < uint64(len(c.words)) {
				c.words[i] = uint64(r.Addend)
			}
		}
		return true
	})
}
