package symbolize

import (
	"fulgur/internal/symbols/elffile"
)

// longestGoName bounds the names that [GoFunctions] reads, in bytes.
const longestGoName = 64

// GoFunctions calls yield with the name and the link-time address of each function in Go's
// function table, until yield returns false. Stripped programs have this table too.
// GoFunctions leaves out functions with names of 64 bytes or more. The name is valid until
// yield returns.
func GoFunctions(f *elffile.File, yield func(name []byte, address uint64) bool) error {
	s := goTableSection(f)
	if s == nil {
		return nil
	}
	t, err := openGoTable(f, s)
	if err != nil {
		return err
	}
	for i := range t.num {
		entry, err := t.entry(i)
		if err != nil {
			return err
		}
		start, err := t.r.uint32(t.funcs.off+8*i+4, "Go function index")
		if err != nil {
			return err
		}
		const nameField = 4 // of _func
		record, err := t.part(t.funcs, uint64(start), t.layout.recordSize, "Go function")
		if err != nil {
			continue // malformed
		}
		name, err := t.r.uint32(record+nameField, "Go function")
		if err != nil {
			return err
		}
		if uint64(name) >= t.names.size {
			continue
		}
		text, ended, err := t.r.CString(t.names.off+uint64(name), min(longestGoName, t.names.size-uint64(name)))
		if err != nil {
			return err
		}
		if ended && !yield(text, t.text+uint64(entry)) {
			return nil
		}
	}
	return nil
}
