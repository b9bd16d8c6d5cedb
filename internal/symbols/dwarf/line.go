package dwarf

import (
	"bytes"
	"path"

	"fulgur/internal/symbols/dwarfdata"
)

// lineTable is the line number program of a unit (6.2). It keeps the program in its encoded
// form, about 3 bytes per row, and a mark at every 64th row from which the program can
// resume. A decoded table would be four times as large.
type lineTable struct {
	off        uint64 // of the header in the section
	size       uint64 // of the header
	program    []byte
	minInst    uint64
	maxOps     uint64
	special    *special
	opcodeBase uint8
	operands   [256]uint8 // operand counts of standard opcodes
	format     format     // format of its contents

	tables int // offset of the directories and files in the header
	paths  map[uint32]string
	files  *fileTable // while paths are looked up

	sequences []sequence
	marks     []mark
	index     segments // address to sequence
}

// sequence is a run of rows with ascending addresses.
type sequence struct {
	first, end int32 // indexes of its marks
}

// row is the source position of the code from an address on.
type row struct {
	addr               uint64
	file, line, column uint32
	discriminator      uint32
}

// mark is a row plus the state needed to continue after it.
type mark struct {
	row
	op  uint32 // index of the operation in a VLIW instruction
	pos uint32 // offset in the program
}

// markEvery is the number of rows between marks.
const markEvery = 64

// maxLineTable bounds the line table of a unit, in bytes.
const maxLineTable = 256 << 20

// readLines reads the line table of a unit. It returns scratch for reuse.
func (u *unit) readLines(scratch []byte) (*lineTable, []byte, error) {
	p := u.file.line
	off := u.root.lineOff
	var start [12]byte
	b := start[:min(12, p.size-min(off, p.size))]
	if err := p.read(b, off); err != nil {
		return nil, scratch, err
	}
	r := dwarfdata.Reader{Data: b}
	length, offsetSize := r.UnitLength()
	if r.Bad || length > p.size-off-uint64(r.Pos) || length > maxLineTable {
		return nil, scratch, p.errorf(off, "line table longer than the section")
	}
	if cap(scratch) < r.Pos+int(length) {
		scratch = make([]byte, r.Pos+int(length))
	}
	raw := scratch[:r.Pos+int(length)]
	if err := p.read(raw, off); err != nil {
		return nil, scratch, err
	}
	t := &lineTable{off: off}
	r = dwarfdata.Reader{Data: raw, Pos: r.Pos}
	if problem := t.header(&r, offsetSize, u.addrSize); problem != "" {
		return nil, scratch, p.errorf(off, "%s", problem)
	}
	t.size = uint64(r.Pos)
	t.program = bytes.Clone(raw[r.Pos:])
	t.run()
	return t, scratch, nil
}

// header reads the header up to its tables and leaves r at the start of the program.
func (t *lineTable) header(r *dwarfdata.Reader, offsetSize, addrSize uint8) string {
	version := r.U16()
	if version < 2 || version > 5 {
		return "line table of an unknown version"
	}
	if version >= 5 {
		addrSize = r.U8()
		r.U8() // size of segment selectors
	}
	t.format = format{version: version, addrSize: addrSize, offsetSize: offsetSize}
	length := r.Word(offsetSize)
	program := uint64(r.Pos) + length
	if r.Bad || length > uint64(r.Left()) || addrSize != 4 && addrSize != 8 {
		return "malformed header of a line table"
	}
	t.minInst = uint64(r.U8())
	t.maxOps = 1
	if version >= 4 {
		t.maxOps = max(1, uint64(r.U8()))
	}
	r.U8() // initial is_stmt
	base, lineRange := int8(r.U8()), r.U8()
	t.opcodeBase = r.U8()
	t.special = specialOpcodes(base, lineRange, t.opcodeBase)
	for i := 1; i < int(t.opcodeBase); i++ {
		t.operands[i] = r.U8()
	}
	t.tables = r.Pos
	if r.Bad || t.special == nil || uint64(r.Pos) > program {
		return "malformed header of a line table"
	}
	r.Pos = int(program)
	return ""
}

// bytes returns the memory size of t, without its paths.
func (t *lineTable) bytes() int {
	return 768 + cap(t.program) + 8*cap(t.sequences) + 40*cap(t.marks) + t.index.bytes()
}

// path returns the path of a file, or "" if there is no file with that number. It is
// relative to its directory entry, which in turn is relative to the compilation
// directory. As in llvm-symbolizer, dots remain.
func (t *lineTable) path(u *unit, number uint32) (string, error) {
	if name, ok := t.paths[number]; ok {
		return name, nil
	}
	name, err := t.readPath(u, number)
	if t.paths == nil {
		t.paths = map[uint32]string{}
	}
	t.paths[number] = name
	return name, err
}

// artificial is the file name that GCC writes at link time for code without a source file.
const artificial = "<artificial>"

func (t *lineTable) readPath(u *unit, number uint32) (string, error) {
	if t.files == nil {
		header, err := u.file.line.bytes(t.off, t.size)
		if err != nil {
			return "", err
		}
		t.files = newFileTable(t, header)
	}
	v, dirNumber, ok := t.files.file(uint64(number))
	if !ok {
		return "", nil
	}
	name, err := u.text(v)
	if err != nil || path.IsAbs(name) {
		return name, err
	}
	if name == artificial {
		return "", nil
	}
	dir := ""
	if v, ok := t.files.dir(dirNumber); ok {
		if dir, err = u.text(v); err != nil {
			return "", err
		}
	}
	name = join(dir, name)
	// In version 5, directory 0 is the compilation directory.
	if !path.IsAbs(dir) && (t.format.version < 5 || dirNumber != 0) {
		name = join(u.root.compDir, name)
	}
	return name, nil
}

// join appends a relative name to a directory without cleaning it.
func join(dir, name string) string {
	switch {
	case dir == "":
		return name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}
