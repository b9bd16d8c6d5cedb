package alloc

import (
	"strings"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/gocode"
	"fulgur/internal/symbols/symbolize"
)

// goMalloc is the function that all allocations of Go programs call, but see goParts.
const goMalloc = "runtime.mallocgc"

// goParts are the functions to which [goMalloc] passes allocations of one byte or more, each
// to one of them. Since Go 1.26, code can call functions for one class of sizes directly
// (GOEXPERIMENT=sizespecializedmalloc); see isSpecialized.
var goParts = []string{"Tiny", "SmallNoscan", "SmallScanNoHeader", "SmallScanHeader", "Large"}

// isSpecialized reports whether a function is for one class of sizes, such as
// runtime.mallocgcSmallNoScanSC5 or runtime.mallocTiny8.
func isSpecialized(name string) bool {
	stem := strings.TrimRight(name, "0123456789")
	return stem != name && (stem == "runtime.mallocTiny" || strings.HasPrefix(stem, goMalloc) && strings.HasSuffix(stem, "SC"))
}

// addGo adds the functions in Go's own table, which stripped programs have, too.
func (d definitions) addGo(f *elffile.File) error {
	return symbolize.GoFunctions(f, func(fn symbolize.GoFunction) bool {
		if isInteresting(fn.Name) {
			if offset, ok := f.Offset(fn.Start); ok {
				d[string(fn.Name)] = definition{offset: offset}
			}
		}
		return len(d) < maxDefinitions
	})
}

// inGo returns the functions of the allocator of a Go program.
func (d definitions) inGo(f *elffile.File) ([]function, error) {
	if err := gocode.CheckVersion(f); err != nil {
		return nil, err
	}
	var names []string
	for name := range d {
		if isSpecialized(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{goMalloc}
	} else {
		for _, part := range goParts {
			names = append(names, goMalloc+part)
		}
	}
	var found []function
	for _, name := range names {
		at, ok := d[name]
		if !ok {
			continue
		}
		code, err := f.Bytes(int64(at.offset), gocode.Prologue, "function")
		if err != nil {
			return nil, err
		}
		found = append(found, function{name: name, offset: at.offset + gocode.AfterStackCheck(f.Machine(), code), program: inGo})
	}
	return found, nil
}
