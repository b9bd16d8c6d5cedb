package alloc

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"go/version"
	"strings"

	"fulgur/internal/symbols/elffile"
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

// oldestGo is the first version that passes arguments in registers on all architectures.
const oldestGo = "go1.18"

// addGo adds the functions in Go's own table, which stripped programs have, too.
func (d definitions) addGo(f *elffile.File) error {
	return symbolize.GoFunctions(f, func(name []byte, address uint64) bool {
		if isInteresting(name) {
			if offset, ok := f.Offset(address); ok {
				d[string(name)] = definition{offset: offset}
			}
		}
		return len(d) < maxDefinitions
	})
}

// inGo returns the functions of the allocator of a Go program.
func (d definitions) inGo(f *elffile.File) ([]function, error) {
	if info, err := buildinfo.Read(f.Reader()); err == nil && version.IsValid(info.GoVersion) && version.Compare(info.GoVersion, oldestGo) < 0 {
		return nil, fmt.Errorf("it was built with %s: older than %s", info.GoVersion, oldestGo)
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
		code, err := f.Bytes(int64(at.offset), prologue, "function")
		if err != nil {
			return nil, err
		}
		found = append(found, function{name, at.offset + afterStackCheck(f.Machine(), code), inGo})
	}
	return found, nil
}

// prologue is the maximum number of bytes of the code that checks the size of the stack.
const prologue = 24

// afterStackCheck returns the offset of the first instruction after the code with which a
// function checks the size of the stack, 0 if it does not begin with such code. If the stack
// is too small, Go grows it and executes the function again from its start, so that a uprobe
// there would count a call twice. The registers with arguments do not change.
func afterStackCheck(machine elf.Machine, code []byte) uint64 {
	rest := code
	skip := func(prefix []byte, operand int) bool {
		if !bytes.HasPrefix(rest, prefix) || len(rest) < len(prefix)+operand {
			return false
		}
		rest = rest[len(prefix)+operand:]
		return true
	}
	done := func() uint64 { return uint64(len(code) - len(rest)) }
	if machine == elf.EM_X86_64 {
		// LEAQ -N(SP), R12; CMPQ R12 or SP, 16(R14); JLS
		large := skip([]byte{0x4c, 0x8d, 0x64, 0x24}, 1) || skip([]byte{0x4c, 0x8d, 0xa4, 0x24}, 4)
		compare := []byte{0x49, 0x3b, 0x66, 0x10}
		if large {
			compare = []byte{0x4d, 0x3b, 0x66, 0x10}
		}
		if skip(compare, 0) && (skip([]byte{0x76}, 1) || skip([]byte{0x0f, 0x86}, 4)) {
			return done()
		}
		return 0
	}
	// MOVD 16(g), R16; [SUB $N, RSP, R17;] CMP R16, RSP or R17; BLS
	if !skip([]byte{0x90, 0x0b, 0x40, 0xf9}, 0) || len(rest) < 12 {
		return 0
	}
	if rest[0]&0x1f == 17 && rest[3] == 0xd1 {
		rest = rest[4:]
	}
	if !skip([]byte{0xff, 0x63, 0x30, 0xeb}, 0) && !skip([]byte{0x3f, 0x02, 0x10, 0xeb}, 0) {
		return 0
	}
	if rest[3] != 0x54 || rest[0]&0x1f != 9 {
		return 0
	}
	rest = rest[4:]
	return done()
}
