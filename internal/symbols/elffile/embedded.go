package elffile

import "fulgur/internal/files/unpack"

// maxEmbedded bounds an embedded symbol table, in bytes. A browser's has about 30 MiB.
const maxEmbedded = 256 << 20

// Embedded returns the ELF file in .gnu_debugdata, or nil if there is none. There, Fedora and
// related distributions store the function symbols that strip removes and .dynsym lacks,
// compressed with xz ("MiniDebugInfo" in GDB's manual). The first call decompresses the file,
// as [Section.Open] does. The result is valid until f is closed.
func (f *File) Embedded() (*File, error) { return f.embedded() }

func (f *File) openEmbedded() (*File, error) {
	s := f.Section(".gnu_debugdata")
	if s == nil {
		return nil, nil
	}
	packed, err := s.Open()
	if err != nil {
		return nil, err
	}
	data, err := s.spool(unpack.NewXZReader(packed), 0, min(f.limit, maxEmbedded))
	if err != nil {
		return nil, err
	}
	embedded, err := New(data, data.Size(), f.name+"("+s.Name+")")
	if err != nil {
		return nil, err
	}
	embedded.SetContext(f.context())
	return embedded, f.keep(embedded)
}
