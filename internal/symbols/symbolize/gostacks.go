package symbolize

import (
	"encoding/binary"
	"fmt"

	"fulgur/internal/symbols/elffile"
)

// GoStack says how far a Go function moves the stack pointer, at link-time addresses.
type GoStack struct {
	GoFunction
	// Outermost means that tracebacks end here (abi.FuncFlagTopFrame).
	Outermost bool
	// Switches means that the function also changes the stack pointer in ways that Sizes does
	// not describe, mostly to change to another stack (abi.FuncFlagSPWrite).
	Switches bool
	// Sizes are valid until yield returns. They are empty for a function without a table, such
	// as one in C.
	Sizes []GoSize
}

// GoSize is the distance from the stack pointer to its value at the function's entry, in bytes,
// from the end of the previous one on. It is negative if unknown.
type GoSize struct {
	// End is the end, exclusive.
	End  uint64
	Size int32
}

// GoStacks calls yield with each function in Go's function table, until yield returns false. It
// skips functions whose tables are malformed, and passes the first error to damaged. It fails if all
// functions together have more than limit sizes: functions can share tables, and so a small file
// could cost any time.
func GoStacks(f *elffile.File, limit int, damaged func(error), yield func(*GoStack) bool) error {
	s := goTableSection(f)
	if s == nil {
		return nil
	}
	t, err := openGoTable(f, s)
	if err != nil {
		return err
	}
	var fn GoStack
	var values pcValues
	for i := range t.num {
		var ok bool
		if fn.GoFunction, ok, err = t.function(i); err != nil {
			return err
		}
		if !ok {
			continue
		}
		values, err = t.stackSizes(&fn, i, values[:0])
		if limit -= max(len(values), 1); limit < 0 {
			return fmt.Errorf("%s: more stack sizes in the Go pclntab than any program needs", f.Name())
		}
		if err != nil {
			damaged(err)
			continue
		}
		fn.Sizes = fn.Sizes[:0]
		for _, v := range values {
			fn.Sizes = append(fn.Sizes, GoSize{End: fn.Start + uint64(v.end), Size: v.value})
		}
		if !yield(&fn) {
			return nil
		}
	}
	return nil
}

// stackSizes sets the flags of function i, and appends its stack sizes to values. The record was
// checked.
func (t *goTable) stackSizes(fn *GoStack, i uint64, values pcValues) (pcValues, error) {
	start, err := t.r.uint32(t.funcs.off+8*i+4, "Go function index")
	if err != nil {
		return values, err
	}
	record, err := t.r.read(t.funcs.off+uint64(start), t.layout.recordSize, "Go function")
	if err != nil {
		return values, err
	}
	const stackField = 16 // pcsp in _func
	const outermost, switches = 1 << 0, 1 << 1
	flags := record[t.layout.recordSize-3]
	fn.Outermost, fn.Switches = flags&outermost != 0, flags&switches != 0
	size := min(fn.End-fn.Start, 1<<32-1)
	err = t.readValues(&values, binary.LittleEndian.Uint32(record[stackField:]), uint32(size))
	return values, err
}
