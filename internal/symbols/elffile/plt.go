package elffile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// Limits on the stubs of a file, in bytes: on their code (half a million functions) and on
// their names.
const (
	maxPLT      = 8 << 20
	maxPLTNames = 64 << 20
)

// PLTEntry is a stub of the procedure linkage table, which calls a function in another
// file.
type PLTEntry struct {
	// Addr is the link-time virtual address, and Size the number of bytes there.
	Addr, Size uint64
	// Name is the name of the called function, truncated to 8 KiB. It is empty if a
	// resolver chooses the function.
	Name string
	// Resolver is the link-time virtual address of the resolver (an IFUNC of this file),
	// if Name is empty.
	Resolver uint64
}

// IsPLT reports whether the section contains stubs of the procedure linkage table.
func (s *Section) IsPLT() bool {
	return s.Type == elf.SHT_PROGBITS && (s.Name == ".plt" || s.Name == ".plt.sec" || s.Name == ".plt.got" || s.Name == ".iplt")
}

// PLT returns the stubs of the procedure linkage table, sorted by address. For machines other
// than x86-64 and arm64, it returns none. It decodes each stub to find its slot of the global
// offset table, and looks up the relocation of that slot. So it works with the layouts of all
// linkers, with and without lazy binding, and with IBT and BTI. It omits stubs without a
// relocation, such as the one that all lazy stubs share.
func (f *File) PLT() ([]PLTEntry, error) {
	var decode func(code []byte, addr uint64) []stub
	switch f.machine {
	case elf.EM_X86_64:
		decode = decodeX86Stubs
	case elf.EM_AARCH64:
		decode = decodeARM64Stubs
	}
	sections, err := f.Sections()
	if err != nil || decode == nil || !f.is64 {
		return nil, err
	}
	var stubs []stub
	left := uint64(maxPLT)
	for _, s := range sections {
		if !s.IsPLT() {
			continue
		}
		if s.Size > left {
			return nil, s.errorf("procedure linkage tables of more than %d bytes", maxPLT)
		}
		left -= s.Size
		code, err := f.Bytes(int64(s.Offset), s.Size, "section "+s.Name)
		if err != nil {
			return nil, err
		}
		stubs = append(stubs, decode(code, s.Addr)...)
	}
	slices.SortFunc(stubs, func(a, b stub) int { return cmp.Compare(a.slot, b.slot) })
	return f.nameStubs(stubs)
}

// stub is code that jumps to the address in a slot of the global offset table.
type stub struct{ addr, size, slot uint64 }

// nameStubs finds the relocations for the slots of stubs, which are sorted by slot.
func (f *File) nameStubs(stubs []stub) ([]PLTEntry, error) {
	var jumpSlot, globDat, irelative uint32
	switch f.machine {
	case elf.EM_X86_64:
		jumpSlot, globDat, irelative = uint32(elf.R_X86_64_JMP_SLOT), uint32(elf.R_X86_64_GLOB_DAT), uint32(elf.R_X86_64_IRELATIVE)
	case elf.EM_AARCH64:
		jumpSlot, globDat, irelative = uint32(elf.R_AARCH64_JUMP_SLOT), uint32(elf.R_AARCH64_GLOB_DAT), uint32(elf.R_AARCH64_IRELATIVE)
	}
	var entries []PLTEntry
	namer := &relocationNamer{f: f}
	err := f.EachRela(func(table *Section, r Rela) bool {
		i, _ := slices.BinarySearchFunc(stubs, r.Offset, func(s stub, slot uint64) int { return cmp.Compare(s.slot, slot) })
		for ; i < len(stubs) && stubs[i].slot == r.Offset; i++ {
			e := PLTEntry{Addr: stubs[i].addr, Size: stubs[i].size}
			switch r.Type {
			case jumpSlot, globDat:
				e.Name = namer.name(table, r.Symbol)
			case irelative:
				e.Resolver = uint64(r.Addend)
			}
			if e.Name != "" || e.Resolver != 0 {
				entries = append(entries, e)
			}
		}
		return namer.err == nil
	})
	if err := cmp.Or(err, namer.err); err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b PLTEntry) int { return cmp.Compare(a.Addr, b.Addr) })
	// A slot should not have more than one relocation.
	return slices.CompactFunc(entries, func(a, b PLTEntry) bool { return a.Addr == b.Addr }), nil
}

// relocationNamer reads the names of the symbols of relocations.
type relocationNamer struct {
	f       *File
	table   *Section // the relocation table to which symbols and names belong
	symbols *Section // nil if there are none
	names   *StringTable
	size    int   // total size of the names, in bytes
	err     error // the first
}

// name returns the name of the symbol with the given index in the symbol table of the
// relocation table, or "".
func (n *relocationNamer) name(table *Section, symbol uint32) string {
	if n.table != table {
		n.table, n.symbols, n.names = table, nil, nil
		if sections := n.f.sections.sections; table.Link > 0 && table.Link < len(sections) {
			n.symbols = sections[table.Link]
			n.names = n.f.SymbolNames(n.symbols)
		}
	}
	if n.names == nil {
		return ""
	}
	sym, err := n.f.symbolAt(n.symbols, uint64(symbol))
	if err != nil {
		n.err = err
		return ""
	}
	name := string(n.names.At(uint64(sym.Name)))
	if n.size += len(name); n.size > maxPLTNames {
		n.err = n.symbols.errorf("names of more than %d bytes", maxPLTNames)
		return ""
	}
	n.err = n.names.Err()
	return name
}

// decodeX86Stubs finds the stubs in x86-64 code at addr. Each stub jumps through a slot
// relative to the program counter. Before the jump, linkers put an endbr64, a bnd prefix, or
// (mold) the load of an index.
func decodeX86Stubs(code []byte, addr uint64) []stub {
	const maxSize, align = 16, 8
	var stubs []stub
	for i := 0; ; {
		at := bytes.Index(code[i:], []byte{0xff, 0x25}) // jmp *rel32(%rip)
		if at < 0 || i+at+6 > len(code) {
			return endStubs(stubs, addr+uint64(len(code)), maxSize)
		}
		jump, next := i+at, i+at+6
		start := jump
		back := func(prefix ...byte) {
			if bytes.HasSuffix(code[i:start], prefix) {
				start -= len(prefix)
			}
		}
		back(0xf2) // bnd
		if start-i >= 6 && bytes.Equal(code[start-6:start-4], []byte{0x41, 0xbb}) {
			start -= 6 // mov $index, %r11d
		}
		back(0xf3, 0x0f, 0x1e, 0xfa) // endbr64
		if start%align != 0 {
			i += at + 1 // not a jump
			continue
		}
		offset := int32(binary.LittleEndian.Uint32(code[jump+2:]))
		slot := addr + uint64(next) + uint64(int64(offset))
		stubs = append(stubs, stub{addr: addr + uint64(start), slot: slot})
		i = next
	}
}

// decodeARM64Stubs finds the stubs in arm64 code at addr. Each stub loads x17 from a slot in
// the page that an adrp puts into x16. A BTI landing pad may precede it.
func decodeARM64Stubs(code []byte, addr uint64) []stub {
	const (
		maxSize    = 24
		btiC       = 0xd503245f
		adrpX16    = 0x90000010
		adrpMask   = 0x9f00001f
		ldrX17X16  = 0xf9400211
		ldrMask    = 0xffc003ff
		pageOffset = 0xfff
	)
	insn := func(i int) uint32 { return binary.LittleEndian.Uint32(code[i:]) }
	var stubs []stub
	for i := 0; i+8 <= len(code); i += 4 {
		adrp, ldr := insn(i), insn(i+4)
		if adrp&adrpMask != adrpX16 || ldr&ldrMask != ldrX17X16 {
			continue
		}
		pages := int64(adrp>>5&0x7ffff)<<2 | int64(adrp>>29&3)
		pages = pages << 43 >> 43 // sign of 21 bits
		slot := (addr+uint64(i))&^pageOffset + uint64(pages<<12) + uint64(ldr>>10&0xfff)*8
		start := i
		if i >= 4 && insn(i-4) == btiC {
			start -= 4
		}
		stubs = append(stubs, stub{addr: addr + uint64(start), slot: slot})
	}
	return endStubs(stubs, addr+uint64(len(code)), maxSize)
}

// endStubs sets the sizes of stubs, which are sorted by address: each extends to the next
// one, and the last one to end, but by at most maxSize.
func endStubs(stubs []stub, end, maxSize uint64) []stub {
	for i := range stubs {
		next := end
		if i+1 < len(stubs) {
			next = stubs[i+1].addr
		}
		stubs[i].size = min(next-stubs[i].addr, maxSize)
	}
	return stubs
}
