package dwarf

import (
	"path"
)

// lineTable is the line number program of a unit (6.2). It keeps the program
// as it is, some 3 bytes for a row, and notes at every 64th row how to go on
// from there: a table of the rows would be four times as large.
type lineTable struct {
	off     uint64 // of the header in the section
	raw     []byte // from the header to the end
	version uint16
	minInst uint64
	maxOps  uint64
	// Special opcodes.
	lineBase   int64
	lineRange  uint64
	opcodeBase uint8
	operands   [256]uint8 // of standard opcodes
	addrSize   uint8

	dirs  []value
	files []fileEntry
	paths []string // of files, once asked for

	sequences []sequence
	marks     []mark
	index     segments // address to sequence
}

// fileEntry is a source file of a line table.
type fileEntry struct {
	name value
	dir  uint64
}

// sequence is a run of rows with ascending addresses.
type sequence struct {
	first, end int32 // of its marks
}

// row is where the code from an address on comes from.
type row struct {
	addr               uint64
	file, line, column uint32
}

// mark is a row and what the state machine needs to go on behind it.
type mark struct {
	row
	op  uint32 // index of the operation in a VLIW instruction
	pos uint32 // in raw
}

// markEvery is the number of rows from one mark to the next.
const markEvery = 64

// maxLineTable bounds the bytes of one unit's lines.
const maxLineTable = 256 << 20

// readLines reads the line table of a unit.
func (u *unit) readLines() (*lineTable, error) {
	p := u.file.line
	off := u.root.lineOff
	b, err := p.window(off, 12)
	if err != nil {
		return nil, err
	}
	r := buf{b: b}
	length, offsetSize := r.unitLength()
	if r.bad || length > p.size-off-uint64(r.pos) || length > maxLineTable {
		return nil, p.errorf(off, "line table longer than the section")
	}
	raw := make([]byte, uint64(r.pos)+length)
	if err := p.read(raw, off); err != nil {
		return nil, err
	}
	t := &lineTable{off: off, raw: raw}
	r = buf{b: raw, pos: r.pos}
	if problem := t.header(&r, offsetSize, u.addrSize); problem != "" {
		return nil, p.errorf(off, "%s", problem)
	}
	t.run(r.pos, u.format)
	t.paths = make([]string, len(t.files))
	return t, nil
}

// header reads the header and leaves r where the program begins.
func (t *lineTable) header(r *buf, offsetSize, addrSize uint8) string {
	t.version = r.u16()
	if t.version < 2 || t.version > 5 {
		return "line table of an unknown version"
	}
	t.addrSize = addrSize
	if t.version >= 5 {
		t.addrSize = r.u8()
		r.u8() // size of segment selectors
	}
	length := r.word(offsetSize)
	program := uint64(r.pos) + length
	if r.bad || length > uint64(r.left()) || t.addrSize != 4 && t.addrSize != 8 {
		return "malformed header of a line table"
	}
	t.minInst = uint64(r.u8())
	t.maxOps = 1
	if t.version >= 4 {
		t.maxOps = max(1, uint64(r.u8()))
	}
	r.u8() // whether rows are statements at first
	t.lineBase = int64(int8(r.u8()))
	t.lineRange = uint64(r.u8())
	t.opcodeBase = r.u8()
	for i := 1; i < int(t.opcodeBase); i++ {
		t.operands[i] = r.u8()
	}
	f := format{version: t.version, addrSize: t.addrSize, offsetSize: offsetSize}
	if t.version >= 5 {
		t.filesV5(r, f)
	} else {
		t.filesV4(r)
	}
	if r.bad || uint64(r.pos) > program {
		return "malformed header of a line table"
	}
	r.pos = int(program)
	return ""
}

// filesV4 reads directories and files as up to version 4. The compilation
// directory is directory 0, and no file has number 0.
func (t *lineTable) filesV4(r *buf) {
	t.dirs = []value{{form: formString}}
	for {
		s := r.cstring()
		if len(s) == 0 {
			break
		}
		t.dirs = append(t.dirs, value{form: formString, inline: s})
	}
	t.files = []fileEntry{{}}
	for {
		s := r.cstring()
		if len(s) == 0 {
			break
		}
		dir := r.uleb()
		r.uleb() // time of modification
		r.uleb() // length
		t.files = append(t.files, fileEntry{value{form: formString, inline: s}, dir})
	}
}

// Contents of entries, 7.22.
const (
	lnctPath           = 1
	lnctDirectoryIndex = 2
)

// filesV5 reads directories and files as of version 5.
func (t *lineTable) filesV5(r *buf, f format) {
	t.entriesV5(r, f, func(e fileEntry) { t.dirs = append(t.dirs, e.name) })
	t.entriesV5(r, f, func(e fileEntry) { t.files = append(t.files, e) })
}

// entriesV5 reads a list of entries whose contents the list describes.
func (t *lineTable) entriesV5(r *buf, f format, add func(fileEntry)) {
	type content struct {
		kind uint64
		form uint16
	}
	contents := make([]content, r.u8())
	for i := range contents {
		contents[i] = content{r.uleb(), uint16(min(r.uleb(), 0xffff))}
	}
	n := r.uleb()
	if n > uint64(r.left()) {
		r.fail() // an entry takes a byte at least
	}
	for range n {
		if r.bad {
			return
		}
		var e fileEntry
		for _, c := range contents {
			v := r.value(attr{form: c.form}, f)
			switch c.kind {
			case lnctPath:
				e.name = v
			case lnctDirectoryIndex:
				e.dir = v.u
			}
		}
		add(e)
	}
}

// size is the memory that t takes, in bytes, without its paths.
func (t *lineTable) size() int {
	return 512 + cap(t.raw) + 40*cap(t.dirs) + 64*cap(t.files) + 8*cap(t.sequences) +
		32*cap(t.marks) + t.index.bytes()
}

// path returns the path of a file, empty if there is none with that number:
// in the directory it names, in the compilation directory if that is relative.
// Like in llvm-symbolizer, dots in it stay.
func (t *lineTable) path(u *unit, number uint32) (string, error) {
	if uint64(number) >= uint64(len(t.files)) {
		return "", nil
	}
	if t.paths[number] != "" {
		return t.paths[number], nil
	}
	e := t.files[number]
	if e.name.form == 0 {
		return "", nil
	}
	name, err := u.text(e.name)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(name) {
		dir := ""
		if e.dir < uint64(len(t.dirs)) {
			if dir, err = u.text(t.dirs[e.dir]); err != nil {
				return "", err
			}
		}
		name = join(dir, name)
		// Directory 0 of version 5 is the compilation directory.
		if !path.IsAbs(dir) && (t.version < 5 || e.dir != 0) {
			name = join(u.root.compDir, name)
		}
	}
	t.paths[number] = name
	return name, nil
}

// join appends a relative name to a directory, as it is.
func join(dir, name string) string {
	switch {
	case dir == "":
		return name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}
