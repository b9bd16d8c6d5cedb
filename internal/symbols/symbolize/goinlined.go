package symbolize

import (
	"slices"

	"fulgur/internal/symbols/elffile"
)

// GoInlined looks for calls of functions that Go's compiler has inlined, so that a breakpoint in the
// function does not see them. It returns the linker names of the first such function found and of the one
// that its code is in, or "" if calls of none of the functions are inlined. The function itself may be
// another of names.
func GoInlined(f *elffile.File, names ...string) (inlined, into string, err error) {
	s := goTableSection(f)
	if s == nil {
		return "", "", nil
	}
	t, err := openGoTable(f, s)
	if err != nil {
		return "", "", err
	}
	var fn goFunction
	for i := range t.num {
		record, off, err := t.readRecord(&fn, i)
		if err == nil {
			err = t.readInlined(&fn, record, off)
		}
		if err != nil {
			return "", "", err
		}
		for _, run := range fn.calls {
			if run.value < 0 {
				continue
			}
			call, err := t.inlinedCall(&fn, uint32(run.value))
			if err != nil {
				return "", "", err
			}
			if slices.Contains(names, call.name.system) {
				name, err := t.name(fn.name)
				return call.name.system, name.system, err
			}
		}
	}
	return "", "", nil
}
