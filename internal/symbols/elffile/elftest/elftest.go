// Package elftest creates ELF files for tests.
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Section is a section of a generated file. Its index is its place in [File.Sections]
// plus 1, since section 0 means none.
type Section struct {
	Name    string
	Type    elf.SectionType // SHT_PROGBITS if 0
	Flags   elf.SectionFlag
	Addr    uint64
	Content []byte
	// Size is the size of a section of type SHT_NOBITS.
	Size       uint64
	Link, Info uint32
	EntSize    uint64
}

// Segment is a program header of a generated file.
type Segment struct {
	Type elf.ProgType
	// Section is the index of the section whose contents the segment maps at its address.
	// 0 uses Prog64 as it is.
	Section int
	elf.Prog64
}

// File describes a generated 64-bit ELF file.
type File struct {
	Type     elf.Type    // ET_DYN if 0
	Machine  elf.Machine // EM_X86_64 if 0
	Entry    uint64
	Segments []Segment
	Sections []Section
}

// Bytes returns the file: header, program headers, the sections' contents
// aligned to eight bytes, section headers.
func (f File) Bytes() []byte {
	const headerSize, progSize, sectionSize = 64, 56, 64
	sections := append([]Section{{Type: elf.SHT_NULL}}, f.Sections...)
	sections = append(sections, Section{Name: ".shstrtab", Type: elf.SHT_STRTAB})
	names := []byte{0}
	headers := make([]elf.Section64, len(sections))
	for i, s := range sections {
		if i > 0 {
			headers[i].Name = uint32(len(names))
			names = append(names, s.Name+"\x00"...)
		}
	}
	sections[len(sections)-1].Content = names

	body := make([]byte, headerSize+progSize*len(f.Segments))
	for i, s := range sections {
		body = append(body, make([]byte, -len(body)&7)...)
		h := &headers[i]
		h.Type, h.Flags, h.Addr = uint32(s.Type), uint64(s.Flags), s.Addr
		if i > 0 && s.Type == 0 {
			h.Type = uint32(elf.SHT_PROGBITS)
		}
		h.Off, h.Size = uint64(len(body)), uint64(len(s.Content))
		if s.Type == elf.SHT_NOBITS {
			h.Size = s.Size
		}
		h.Link, h.Info, h.Entsize, h.Addralign = s.Link, s.Info, s.EntSize, 1
		body = append(body, s.Content...)
	}
	body = append(body, make([]byte, -len(body)&7)...)

	header := elf.Header64{
		Type: uint16(f.Type), Machine: uint16(f.Machine), Version: uint32(elf.EV_CURRENT), Entry: f.Entry,
		Phoff: headerSize, Phentsize: progSize, Phnum: uint16(len(f.Segments)),
		Shoff: uint64(len(body)), Shentsize: sectionSize, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
		Ehsize: headerSize,
	}
	if f.Type == 0 {
		header.Type = uint16(elf.ET_DYN)
	}
	if f.Machine == 0 {
		header.Machine = uint16(elf.EM_X86_64)
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	copy(body, Struct(header))
	for i, s := range f.Segments {
		p := s.Prog64
		p.Type = uint32(s.Type)
		if s.Section > 0 {
			h := headers[s.Section]
			p.Off, p.Filesz, p.Memsz, p.Vaddr = h.Off, h.Size, h.Size, h.Addr
		}
		copy(body[headerSize+progSize*i:], Struct(p))
	}
	for _, h := range headers {
		body = append(body, Struct(h)...)
	}
	return body
}

// Struct returns the encoding of v, a structure of fixed size.
func Struct(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err) // v does not have a fixed size
	}
	return b.Bytes()
}

// BuildID returns a note section with the given build ID.
func BuildID(id []byte) Section {
	note := binary.LittleEndian.AppendUint32(nil, 4)
	note = binary.LittleEndian.AppendUint32(note, uint32(len(id)))
	note = binary.LittleEndian.AppendUint32(note, 3)
	note = append(note, "GNU\x00"...)
	return Section{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Content: append(note, id...)}
}

// Symbol is an entry of a generated symbol table.
type Symbol struct {
	Name    string
	Value   uint64
	Size    uint64
	Binding elf.SymBind
	Type    elf.SymType
	Section elf.SectionIndex
	Other   byte
}

// Symbols returns a symbol table of the given type, whose names are in the section with
// index names, and the contents of that section.
func Symbols(typ elf.SectionType, names uint32, symbols ...Symbol) (table, strings Section) {
	table = Section{Name: ".symtab", Type: typ, Link: names, EntSize: elf.Sym64Size, Content: make([]byte, elf.Sym64Size)}
	strings = Section{Name: ".strtab", Type: elf.SHT_STRTAB, Content: []byte{0}}
	if typ == elf.SHT_DYNSYM {
		table.Name, strings.Name = ".dynsym", ".dynstr"
	}
	for _, s := range symbols {
		table.Content = append(table.Content, Struct(elf.Sym64{
			Name: uint32(len(strings.Content)), Info: elf.ST_INFO(s.Binding, s.Type), Other: s.Other,
			Shndx: uint16(s.Section), Value: s.Value, Size: s.Size,
		})...)
		strings.Content = append(strings.Content, s.Name+"\x00"...)
	}
	return table, strings
}
