package symbolize

import (
	"debug/elf"
	"encoding/binary"
	"sort"

	"fulgur/internal/elffile"
)

// Go's function table, .gopclntab, as the runtime of Go 1.18 and newer reads
// it (runtime/symtab.go: pcHeader, moduledata; runtime/runtime2.go: _func). It
// survives strip and -ldflags=-s, is sorted, and covers exactly the code that
// the Go linker laid out; code from C is left to the symbol tables.

// The magic numbers of the table, by the version that introduced them.
const (
	goMagic118 = 0xfffffff0
	goMagic120 = 0xfffffff1
)

// goTable is the header of a pclntab.
type goTable struct {
	f     *elffile.File
	off   uint64 // of the table in the file
	size  uint64
	num   uint64 // of functions
	text  uint64 // the address that all others are relative to
	names *elffile.StringTable
	funcs uint64 // offset in the file of the functions' index and records
	lines bool   // whether records have a start line
}

// lookupGo names addrs from Go's function table, if the file has one.
func (e *ELF) lookupGo(addrs []uint64, frames [][]Frame) error {
	s := goTableSection(e.file)
	if s == nil {
		return nil
	}
	t, err := openGoTable(e.file, s)
	if err != nil {
		return err
	}
	return t.lookup(addrs, frames)
}

// goTableSection returns the section with Go's function table, or nil.
func goTableSection(f *elffile.File) *elffile.Section {
	if s := f.Section(".gopclntab"); s != nil {
		return s
	}
	return f.Section(".data.rel.ro.gopclntab")
}

// openGoTable reads the header of the table in s.
func openGoTable(f *elffile.File, s *elffile.Section) (*goTable, error) {
	const maxHeader = 8 + 8*8
	var header [maxHeader]byte
	used := 8 + 8*f.WordSize()
	if s.Size < uint64(used) {
		return nil, f.Errorf(int64(s.Offset), "truncated Go pclntab")
	}
	if err := f.ReadFull(header[:used], int64(s.Offset), "Go pclntab header"); err != nil {
		return nil, err
	}
	magic := binary.LittleEndian.Uint32(header[:])
	if magic != goMagic118 && magic != goMagic120 {
		return nil, f.Errorf(int64(s.Offset), "Go pclntab of an unknown version (magic %#x); Go 1.18 and newer are read", magic)
	}
	if ptr := int(header[7]); ptr != f.WordSize() {
		return nil, f.Errorf(int64(s.Offset), "Go pclntab with pointers of %d bytes", ptr)
	}
	word := func(i int) uint64 { return f.Word(header[8+i*f.WordSize():]) }
	t := &goTable{f: f, off: s.Offset, size: s.Size, num: word(0), lines: magic == goMagic120}
	names, cus, funcs := word(3), word(4), word(7)
	if names > cus || cus > s.Size || funcs > s.Size || t.num >= (s.Size-funcs)/8 {
		return nil, f.Errorf(int64(s.Offset), "Go pclntab whose parts lie outside of it")
	}
	t.names = f.Strings(s.Offset+names, cus-names)
	t.funcs = s.Offset + funcs
	textStart := s.Addr + 8 + 2*uint64(f.WordSize())
	var err error
	t.text, err = t.findText(word(2), textStart)
	return t, err
}

// findText returns the address of runtime.text. Up to Go 1.25 the header has
// it, at address field; since 1.26 the header holds 0, and it is found in the
// module data, which has a section of its own. Position-independent files keep
// either in a relocation.
func (t *goTable) findText(header, field uint64) (uint64, error) {
	// Of moduledata, in words: six slices and a pointer stand before
	// findfunctab, minpc, maxpc and text.
	const minpcField, textField = 20, 22
	if v, ok, err := t.relocated(field); err != nil || ok {
		return v, err
	}
	if header != 0 {
		return header, nil
	}
	s := t.f.Section(".go.module")
	if s == nil {
		return 0, t.f.Errorf(int64(t.off), "Go pclntab without the address of the text it describes")
	}
	text, err := t.pointer(s, textField)
	if err != nil {
		return 0, err
	}
	minpc, err := t.pointer(s, minpcField)
	if err != nil {
		return 0, err
	}
	entry, err := t.entry(0)
	if err != nil {
		return 0, err
	}
	// The lowest function tells whether the layout is still the known one.
	if text == 0 || text+entry != minpc {
		return 0, t.f.Errorf(int64(s.Offset), "Go module data of an unknown layout")
	}
	return text, nil
}

// pointer returns the i-th word of s, relocated.
func (t *goTable) pointer(s *elffile.Section, i uint64) (uint64, error) {
	width := uint64(t.f.WordSize())
	if i >= s.Size/width {
		return 0, t.f.Errorf(int64(s.Offset), "Go module data outside of its section")
	}
	if v, ok, err := t.relocated(s.Addr + i*width); err != nil || ok {
		return v, err
	}
	b, err := t.f.Bytes(int64(s.Offset+i*width), width, "Go module data")
	if err != nil {
		return 0, err
	}
	return t.f.Word(b), nil
}

// relocated returns the value that a relative relocation with an addend gives
// to the word at addr. It reports false if there is none.
func (t *goTable) relocated(addr uint64) (v uint64, ok bool, err error) {
	var relative uint32
	switch t.f.Machine() {
	case elf.EM_X86_64:
		relative = uint32(elf.R_X86_64_RELATIVE)
	case elf.EM_AARCH64:
		relative = uint32(elf.R_AARCH64_RELATIVE)
	}
	if t.f.Type() != elf.ET_DYN || relative == 0 {
		return 0, false, nil
	}
	err = t.f.EachRela(func(_ *elffile.Section, r elffile.Rela) bool {
		if ok = r.Offset == addr && r.Type == relative; ok {
			v = uint64(r.Addend)
		}
		return !ok
	})
	return v, ok, err
}

// entry returns where the i-th function begins, relative to the text; entry
// num is where the last one ends.
func (t *goTable) entry(i uint64) (uint64, error) {
	var b [4]byte
	err := t.f.ReadFull(b[:], int64(t.funcs+8*i), "Go function index")
	return uint64(binary.LittleEndian.Uint32(b[:])), err
}

// lookup names sorted addrs. A faulty record costs its own function only.
func (t *goTable) lookup(addrs []uint64, frames [][]Frame) error {
	end, err := t.entry(t.num)
	if err != nil {
		return err
	}
	var faulty error
	low := 0 // no address from here on lies in a function below low
	for i, addr := range addrs {
		if addr < t.text || addr-t.text >= end {
			continue
		}
		pc := addr - t.text
		next := low + sort.Search(int(t.num)-low, func(j int) bool {
			var start uint64
			if err == nil {
				start, err = t.entry(uint64(low + j))
			}
			return start > pc
		})
		if err != nil {
			return err
		}
		if next == 0 {
			continue // before the first function
		}
		low = next - 1
		var recordErr error
		if frames[i], recordErr = t.function(uint64(low), pc); recordErr != nil {
			faulty = recordErr
		}
	}
	return faulty
}

// function returns the frame of function i, for a pc relative to the text.
func (t *goTable) function(i, pc uint64) ([]Frame, error) {
	// Of _func, in bytes.
	const nameField, startLineField, recordSize = 4, 36, 44
	var index [8]byte
	if err := t.f.ReadFull(index[:], int64(t.funcs+8*i), "Go function index"); err != nil {
		return nil, err
	}
	entry := uint64(binary.LittleEndian.Uint32(index[:]))
	off := t.funcs + uint64(binary.LittleEndian.Uint32(index[4:]))
	if off+recordSize > t.off+t.size {
		return nil, t.f.Errorf(int64(off), "Go function outside of its table")
	}
	var record [recordSize]byte
	if err := t.f.ReadFull(record[:], int64(off), "Go function"); err != nil {
		return nil, err
	}
	name := t.names.At(uint64(binary.LittleEndian.Uint32(record[nameField:])))
	if len(name) == 0 {
		return nil, t.names.Err()
	}
	// Go does not mangle.
	f := NewFrame(name, pc-entry, Options{NoDemangle: true})
	if t.lines {
		f.StartLine = int(int32(binary.LittleEndian.Uint32(record[startLineField:])))
	}
	return []Frame{f}, nil
}
