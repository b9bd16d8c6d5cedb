package symbolize

import (
	"fulgur/internal/symbols/elffile"
)

// longestGoName bounds the names that [GoFunctions] reads, in bytes.
const longestGoName = 64

// GoFunction is a function in Go's function table, at link-time addresses.
type GoFunction struct {
	// Name is empty if it has 64 bytes or more. It is valid until yield returns.
	Name []byte
	// Start and End are the bounds. End is where the next function starts, after padding.
	Start, End uint64
	// Assembly means that the function is written in assembly.
	Assembly bool
}

// GoFunctions calls yield with each function in Go's function table, until yield returns false.
// Stripped programs have this table too.
func GoFunctions(f *elffile.File, yield func(GoFunction) bool) error {
	s := goTableSection(f)
	if s == nil {
		return nil
	}
	t, err := openGoTable(f, s)
	if err != nil {
		return err
	}
	for i := range t.num {
		fn, ok, err := t.function(i)
		if err != nil {
			return err
		}
		if ok && !yield(fn) {
			return nil
		}
	}
	return nil
}

// function reads function i; ok is false if its record is malformed.
func (t *goTable) function(i uint64) (fn GoFunction, ok bool, err error) {
	start, err := t.entry(i)
	if err != nil {
		return fn, false, err
	}
	end, err := t.entry(i + 1)
	if err != nil {
		return fn, false, err
	}
	offset, err := t.r.uint32(t.funcs.off+8*i+4, "Go function index")
	if err != nil {
		return fn, false, err
	}
	if !t.funcs.has(uint64(offset), t.layout.recordSize) || end < start {
		return fn, false, nil
	}
	record := t.funcs.off + uint64(offset)
	const nameField = 4 // of _func
	name, err := t.r.uint32(record+nameField, "Go function")
	if err != nil {
		return fn, false, err
	}
	// The last word of _func has the function's ID, flags, padding and the number of tables.
	last, err := t.r.uint32(record+t.layout.recordSize-4, "Go function")
	if err != nil {
		return fn, false, err
	}
	const assembly = 1 << 2 // abi.FuncFlagAsm
	fn = GoFunction{Start: t.text + uint64(start), End: t.text + uint64(end), Assembly: last>>8&assembly != 0}
	if uint64(name) >= t.names.size {
		return fn, false, nil
	}
	text, ended, err := t.r.CString(t.names.off+uint64(name), min(longestGoName, t.names.size-uint64(name)))
	if ended {
		fn.Name = text
	}
	return fn, true, err
}
