package symbolize

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
)

// symbol is a function symbol while it competes for an address.
type symbol struct {
	found       bool
	start, size uint64
	name        uint32 // offset in the string table
	section     uint16
	binding     elf.SymBind
}

// lookupSymbols names addrs from the symbol table of the given type, in one
// pass over it. The gABI allows one table of each type.
//
// A symbol that has a size and covers an address wins, the innermost one if
// they nest. Assembly often leaves the size out; such a symbol reaches to the
// next one, at most to the end of its section. In .dynsym that would be a
// guess, since it leaves out what is not exported, so there such symbols hold
// nothing.
func (e *ELF) lookupSymbols(typ elf.SectionType, addrs []uint64, frames [][]Frame) error {
	for _, s := range e.sections {
		if s.typ != typ || s.link >= len(e.sections) {
			continue
		}
		strtab := e.sections[s.link]
		p := symbolPass{
			e:       e,
			names:   e.strings(strtab.off, strtab.size),
			gaps:    gaps{addrs: addrs},
			covers:  make([]symbol, len(addrs)),
			nearest: make([]symbol, len(addrs)),
		}
		err := p.run(s)
		p.resolve(frames, typ == elf.SHT_SYMTAB)
		return cmp.Or(err, p.names.err)
	}
	return nil
}

// symbolPass is one pass over a symbol table.
type symbolPass struct {
	e     *ELF
	names *stringTable
	gaps  gaps
	// covers holds for each address the best symbol whose size covers it.
	covers []symbol
	// nearest holds for each address the last symbol that starts at or
	// below it, but above the address before: a symbol is noted in one
	// place, however many addresses follow it.
	nearest []symbol
}

// run reads the table s in chunks.
func (p *symbolPass) run(s section) error {
	const chunk = 2048 // symbols; 48 KiB
	entsize := uint64(p.e.pick(elf.Sym32Size, elf.Sym64Size))
	if err := p.e.check(int64(s.off), s.size, "symbol table"); err != nil {
		return err
	}
	buf := make([]byte, min(chunk*entsize, s.size))
	for off, end := s.off, s.off+s.size-s.size%entsize; off < end; off += uint64(len(buf)) {
		buf = buf[:min(uint64(len(buf)), end-off)]
		if err := p.e.readAt(buf, int64(off), "symbol table"); err != nil {
			return err
		}
		for b := buf; uint64(len(b)) >= entsize; b = b[entsize:] {
			p.add(b)
		}
	}
	return nil
}

// add enters one symbol table entry into the competition.
func (p *symbolPass) add(b []byte) {
	var info byte
	var sym symbol
	if p.e.is64 {
		info = b[4]
		sym.section = binary.LittleEndian.Uint16(b[6:])
		sym.start = binary.LittleEndian.Uint64(b[8:])
		sym.size = binary.LittleEndian.Uint64(b[16:])
	} else {
		sym.start = uint64(binary.LittleEndian.Uint32(b[4:]))
		sym.size = uint64(binary.LittleEndian.Uint32(b[8:]))
		info = b[12]
		sym.section = binary.LittleEndian.Uint16(b[14:])
	}
	sym.name = binary.LittleEndian.Uint32(b)
	sym.binding = elf.ST_BIND(info)
	sym.found = true
	typ := elf.ST_TYPE(info)

	if typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC && typ != elf.STT_NOTYPE {
		return
	}
	if int(sym.section) >= len(p.e.sections) {
		return // absolute or common
	}
	if p.e.machine == elf.EM_ARM {
		sym.start &^= 1 // marks Thumb code
	}
	in := p.e.sections[sym.section]
	if !in.exec || !in.holds(sym.start) {
		return // undefined, data, or the mark of a section's end
	}
	sym.size = min(sym.size, in.size-(sym.start-in.addr))

	first := p.gaps.after(sym.start)
	if first == len(p.gaps.addrs) {
		return
	}
	if typ == elf.STT_NOTYPE && sym.binding == elf.STB_LOCAL && isLabel(p.names.at(uint64(sym.name))) {
		return
	}
	p.offer(&p.nearest[first], sym)
	for i := first; i < len(p.gaps.addrs) && p.gaps.addrs[i]-sym.start < sym.size; i++ {
		p.offer(&p.covers[i], sym)
	}
}

// isLabel reports whether a local symbol without a type is no function: a
// mapping symbol of ARM ("$x", "$d.1") or a label that the compiler made.
func isLabel(name []byte) bool {
	return len(name) == 0 || name[0] == '$' || len(name) > 1 && name[0] == '.' && name[1] == 'L'
}

// offer puts sym into place if it is better than what is there. Of aliases it
// takes what perf takes: one with a size, then one that is not weak, then a
// global one, then the better name.
func (p *symbolPass) offer(place *symbol, sym symbol) {
	var better bool
	switch old := *place; {
	case !old.found:
		better = true
	case sym.start != old.start:
		better = sym.start > old.start
	case (sym.size == 0) != (old.size == 0):
		better = sym.size != 0
	case (sym.binding == elf.STB_WEAK) != (old.binding == elf.STB_WEAK):
		better = old.binding == elf.STB_WEAK
	case (sym.binding == elf.STB_LOCAL) != (old.binding == elf.STB_LOCAL):
		better = old.binding == elf.STB_LOCAL
	default:
		name := bytes.Clone(p.names.at(uint64(sym.name))) // the next read overwrites it
		better = preferName(name, p.names.at(uint64(old.name)))
	}
	if better {
		*place = sym
	}
}

// resolve names the addresses that a symbol was found for. Unsized symbols
// count only if extend is set.
func (p *symbolPass) resolve(frames [][]Frame, extend bool) {
	var below symbol // the last symbol at or below the address
	for i, addr := range p.gaps.addrs {
		if p.nearest[i].found {
			below = p.nearest[i]
		}
		sym := p.covers[i]
		if !sym.found {
			if !extend || !below.found || below.size != 0 || !p.e.sections[below.section].holds(addr) {
				continue
			}
			sym = below
		}
		name := p.names.at(uint64(sym.name))
		if len(name) == 0 {
			continue
		}
		frames[i] = []Frame{NewFrame(name, addr-sym.start, p.e.opts)}
	}
}

// holds reports whether addr lies in s.
func (s section) holds(addr uint64) bool { return addr >= s.addr && addr-s.addr < s.size }
