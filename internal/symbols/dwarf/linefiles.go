package dwarf

import "fulgur/internal/symbols/dwarfdata"

// fileTable finds directories and files of a line table. A table has hundreds of them, but
// few are needed, so fileTable only records the position of every 16th.
type fileTable struct {
	raw         []byte
	format      format
	dirs, files entryList
}

// entryList is a list of entries in a line table.
type entryList struct {
	contents []entryPart // of each entry, as in version 5
	marks    []uint32    // positions of every 16th entry
	count    uint64
}

// entryPart is a part of an entry (6.2.4.1).
type entryPart struct {
	kind uint64
	form uint16
}

// Content types (7.22).
const (
	lnctPath           = 1
	lnctDirectoryIndex = 2
)

const entriesPerMark = 16

// newFileTable reads the tables in the header of t. A malformed table is truncated.
func newFileTable(t *lineTable, header []byte) *fileTable {
	f := &fileTable{raw: header, format: t.format}
	r := &dwarfdata.Reader{Data: header, Pos: t.tables}
	if t.format.version >= 5 {
		f.listV5(r, &f.dirs)
		f.listV5(r, &f.files)
		return f
	}
	// Up to version 4, an empty name ends a list.
	f.dirs.contents = []entryPart{{lnctPath, formString}}
	f.listV4(r, &f.dirs)
	f.files.contents = []entryPart{
		{lnctPath, formString}, {lnctDirectoryIndex, formUdata},
		{0, formUdata}, {0, formUdata}, // time of modification, length
	}
	f.listV4(r, &f.files)
	return f
}

func (f *fileTable) listV4(r *dwarfdata.Reader, l *entryList) {
	for r.Left() > 0 && r.Data[r.Pos] != 0 {
		f.note(r, l)
	}
	r.U8()
}

func (f *fileTable) listV5(r *dwarfdata.Reader, l *entryList) {
	l.contents = make([]entryPart, r.U8())
	for i := range l.contents {
		l.contents[i] = entryPart{r.ULEB(), uint16(min(r.ULEB(), 0xffff))}
	}
	n := r.ULEB()
	if n > uint64(r.Left()) {
		r.Fail() // an entry has at least one byte
	}
	for l.count < n && !r.Bad {
		f.note(r, l)
	}
}

// note skips an entry.
func (f *fileTable) note(r *dwarfdata.Reader, l *entryList) {
	pos := r.Pos
	f.entry(r, l)
	if r.Bad {
		return
	}
	if l.count%entriesPerMark == 0 {
		l.marks = append(l.marks, uint32(pos))
	}
	l.count++
}

// entry reads an entry.
func (f *fileTable) entry(r *dwarfdata.Reader, l *entryList) (name value, dir uint64) {
	for _, c := range l.contents {
		v := readValue(r, attr{form: c.form}, f.format)
		switch c.kind {
		case lnctPath:
			name = v
		case lnctDirectoryIndex:
			dir = v.u
		}
	}
	return name, dir
}

// at returns the entry with the given index, starting at 0.
func (f *fileTable) at(l *entryList, index uint64) (name value, dir uint64, ok bool) {
	if index >= l.count {
		return value{}, 0, false
	}
	r := &dwarfdata.Reader{Data: f.raw, Pos: int(l.marks[index/entriesPerMark])}
	for range index % entriesPerMark {
		f.entry(r, l)
	}
	name, dir = f.entry(r, l)
	return name, dir, name.form != 0
}

// file returns the name of a file and the number of its directory. Up to version 4, files
// are numbered from 1.
func (f *fileTable) file(number uint64) (name value, dir uint64, ok bool) {
	if f.format.version < 5 {
		number-- // 0 means none
	}
	return f.at(&f.files, number)
}

// dir returns the name of a directory. Up to version 4, number 0 is the compilation
// directory, which is not in the table.
func (f *fileTable) dir(number uint64) (name value, ok bool) {
	if f.format.version < 5 {
		number--
	}
	name, _, ok = f.at(&f.dirs, number)
	return name, ok
}
