package elffile

import (
	"debug/elf"
	"io"
	"strings"
	"sync"
)

// Section is a section header.
type Section struct {
	Name  string
	Type  elf.SectionType
	Flags elf.SectionFlag
	// Addr is the link-time virtual address, or 0 if the section is not mapped.
	Addr uint64
	// Offset and Size are the section's bytes in the file, in compressed form if the section
	// is compressed. For a section without contents (SHT_NOBITS), Size is the size in memory.
	Offset, Size uint64
	// Link and Info are sh_link and sh_info of the gABI. Their meaning depends on Type.
	Link, Info int
	// Align is the alignment of Addr, and EntSize the size of a table's entries.
	Align, EntSize uint64

	file *File
	open func() (*io.SectionReader, error)
}

// Holds reports whether the section contains addr in memory.
func (s *Section) Holds(addr uint64) bool { return addr >= s.Addr && addr-s.Addr < s.Size }

// sectionTable is the location of the section headers, and the headers read so far.
type sectionTable struct {
	off                 int64
	entsize, num, names int

	once     sync.Once
	sections []*Section
	err      error
}

// Sections returns the section headers in file order, or none if the file has none. The
// caller must not modify them.
func (f *File) Sections() ([]*Section, error) {
	f.sections.once.Do(func() { f.sections.sections, f.sections.err = f.readSections() })
	return f.sections.sections, f.sections.err
}

// Section returns the first section with the given name that has contents. It returns nil
// if there is none, or if [File.Sections] fails. Debug sections compressed in the older
// format are found by their usual names: ".debug_info" also finds ".zdebug_info".
func (f *File) Section(name string) *Section {
	sections, err := f.Sections()
	if err != nil {
		return nil
	}
	old := ""
	if rest, ok := strings.CutPrefix(name, ".debug_"); ok {
		old = oldCompressedPrefix + rest
	}
	for _, s := range sections {
		if (s.Name == name || old != "" && s.Name == old) && s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			return s
		}
	}
	return nil
}

func (f *File) readSections() ([]*Section, error) {
	t := &f.sections
	if t.off == 0 {
		return nil, nil
	}
	if t.entsize < f.pick(40, 64) {
		return nil, f.Errorf(t.off, "section headers of %d bytes", t.entsize)
	}
	num, names, err := f.sectionNumbers()
	if err != nil {
		return nil, err
	}
	table, err := f.Bytes(t.off, uint64(num)*uint64(t.entsize), "section headers")
	if err != nil {
		return nil, err
	}
	sections := make([]*Section, num)
	for i := range sections {
		sections[i] = f.newSection(fields{table[i*t.entsize:], f.is64})
	}
	if names >= num {
		return sections, nil
	}
	strs := f.stringsAt(sections[names])
	for i, s := range sections {
		// A section with an unreadable name is never looked up by name.
		name := strs.At(uint64(fields{table[i*t.entsize:], f.is64}.uint32(0, 0)))
		s.Name = string(name[:min(len(name), maxSectionName)])
	}
	return sections, nil
}

// sectionNumbers returns the number of sections and the index of the one with their
// names. Numbers that do not fit into the ELF header are in the first section header.
func (f *File) sectionNumbers() (num, names int, err error) {
	t := &f.sections
	num, names = t.num, t.names
	if num == 0 || names == int(elf.SHN_XINDEX) {
		first, err := f.Bytes(t.off, uint64(t.entsize), "first section header")
		if err != nil {
			return 0, 0, err
		}
		h := fields{first, f.is64}
		if num == 0 {
			num = int(min(h.word(20, 32), maxSections+1))
		}
		if names == int(elf.SHN_XINDEX) {
			names = int(h.uint32(24, 40))
		}
	}
	if num > maxSections {
		return 0, 0, f.Errorf(t.off, "more section headers than any linker writes")
	}
	return num, names, nil
}

func (f *File) newSection(h fields) *Section {
	s := &Section{
		Type:    elf.SectionType(h.uint32(4, 4)),
		Flags:   elf.SectionFlag(h.word(8, 8)),
		Addr:    h.word(12, 16),
		Offset:  h.word(16, 24),
		Size:    h.word(20, 32),
		Link:    int(h.uint32(24, 40)),
		Info:    int(h.uint32(28, 44)),
		Align:   h.word(32, 48),
		EntSize: h.word(36, 56),
		file:    f,
	}
	s.open = sync.OnceValues(s.openOnce)
	return s
}
