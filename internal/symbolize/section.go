package symbolize

import (
	"debug/elf"
	"fmt"
)

// section is what a look-up needs of a section header.
type section struct {
	typ       elf.SectionType
	exec      bool
	goTable   bool // Go's pclntab
	goModule  bool // Go's first moduledata, since Go 1.26
	addr, off uint64
	size      uint64
	link      int
}

// loadSections reads the section headers once.
func (e *ELF) loadSections() error {
	e.sectionsOnce.Do(func() { e.sections, e.sectionsErr = e.readSections() })
	return e.sectionsErr
}

func (e *ELF) readSections() ([]section, error) {
	if e.shoff == 0 {
		return nil, nil
	}
	entsize := e.shentsize
	if entsize < e.pick(40, 64) {
		return nil, e.errorf(e.shoff, fmt.Sprintf("section headers of %d bytes", entsize))
	}
	num, shstr := e.shnum, e.shstr
	if num == 0 || shstr == int(elf.SHN_XINDEX) {
		// Numbers that do not fit the ELF header stand in the first
		// section header.
		first, err := e.read(e.shoff, uint64(entsize), "first section header")
		if err != nil {
			return nil, err
		}
		h := fields{first, e.is64}
		if num == 0 {
			num = int(min(h.word(20, 32), maxSections+1))
		}
		if shstr == int(elf.SHN_XINDEX) {
			shstr = int(h.uint32(24, 40))
		}
	}
	if num > maxSections {
		return nil, e.errorf(e.shoff, "more section headers than any linker writes")
	}
	table, err := e.read(e.shoff, uint64(num)*uint64(entsize), "section headers")
	if err != nil {
		return nil, err
	}
	sections := make([]section, num)
	names := make([]uint32, num)
	for i := range sections {
		h := fields{table[i*entsize:], e.is64}
		names[i] = h.uint32(0, 0)
		sections[i] = section{
			typ:  elf.SectionType(h.uint32(4, 4)),
			exec: elf.SectionFlag(h.word(8, 8))&elf.SHF_EXECINSTR != 0,
			addr: h.word(12, 16),
			off:  h.word(16, 24),
			size: h.word(20, 32),
			link: int(h.uint32(24, 40)),
		}
	}
	if shstr >= num {
		return sections, nil
	}
	strs := e.strings(sections[shstr].off, sections[shstr].size)
	for i := range sections {
		// A section without a readable name is none of Go's.
		switch string(strs.at(uint64(names[i]))) {
		case ".gopclntab", ".data.rel.ro.gopclntab":
			sections[i].goTable = sections[i].typ != elf.SHT_NOBITS
		case ".go.module":
			sections[i].goModule = true
		}
	}
	return sections, nil
}
