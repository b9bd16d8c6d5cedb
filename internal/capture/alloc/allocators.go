package alloc

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/returns"
)

// function is a function of an allocator in a file.
type function struct {
	name   string
	offset uint64 // in the file
	// program is the program for its entry, which knows its arguments.
	program program
	// isKnown is set if a stack is neither switched nor left in calls of the function, so that the kernel
	// may replace their return addresses, which costs less than breakpoints on return instructions. For
	// other functions, returns are the offsets in the file of the return instructions.
	isKnown bool
	returns []uint64
}

// program is an index of [programs].
type program = bpf.AllocAllocProgram

// programs are the names of the programs at functions.
var programs = [...]string{
	bpf.AllocAllocProgramALLOC_LEAF:         bpf.AllocProgAllocLeaf,
	bpf.AllocAllocProgramALLOC_SIZE:         bpf.AllocProgAllocSize,
	bpf.AllocAllocProgramALLOC_NEW:          bpf.AllocProgAllocNew,
	bpf.AllocAllocProgramALLOC_ALIGNED:      bpf.AllocProgAllocAligned,
	bpf.AllocAllocProgramALLOC_STORED:       bpf.AllocProgAllocStored,
	bpf.AllocAllocProgramALLOC_ARRAY:        bpf.AllocProgAllocArray,
	bpf.AllocAllocProgramALLOC_RESIZE:       bpf.AllocProgAllocResize,
	bpf.AllocAllocProgramALLOC_RESIZE_ARRAY: bpf.AllocProgAllocResizeArray,
	bpf.AllocAllocProgramALLOC_GO:           bpf.AllocProgAllocGo,
	bpf.AllocAllocProgramALLOC_FREE:         bpf.AllocProgAllocFree,
	bpf.AllocAllocProgramALLOC_RETURN:       bpf.AllocProgAllocReturn,
	bpf.AllocAllocProgramALLOC_PROBE:        bpf.AllocProgAllocProbe,
	bpf.AllocAllocProgramALLOC_PROBE_FREE:   bpf.AllocProgAllocProbeFree,
}

// Short names of programs.
const (
	leaf        = bpf.AllocAllocProgramALLOC_LEAF
	size        = bpf.AllocAllocProgramALLOC_SIZE
	throws      = bpf.AllocAllocProgramALLOC_NEW
	aligned     = bpf.AllocAllocProgramALLOC_ALIGNED
	stored      = bpf.AllocAllocProgramALLOC_STORED
	array       = bpf.AllocAllocProgramALLOC_ARRAY
	resize      = bpf.AllocAllocProgramALLOC_RESIZE
	resizeArray = bpf.AllocAllocProgramALLOC_RESIZE_ARRAY
	inGo        = bpf.AllocAllocProgramALLOC_GO
	free        = bpf.AllocAllocProgramALLOC_FREE
	ended       = bpf.AllocAllocProgramALLOC_RETURN
	sampled     = bpf.AllocAllocProgramALLOC_PROBE
	released    = bpf.AllocAllocProgramALLOC_PROBE_FREE
)

// family are the functions of an allocator that C programs call. The names in jemalloc may
// have a prefix.
var family = map[string]program{
	"malloc":         size,
	"valloc":         size,
	"pvalloc":        size,
	"calloc":         array,
	"realloc":        resize,
	"reallocarray":   resizeArray,
	"aligned_alloc":  aligned,
	"memalign":       aligned,
	"posix_memalign": stored,
	"free":           free,
	"cfree":          free,
	// Of jemalloc alone.
	"mallocx":  size,
	"rallocx":  resize,
	"dallocx":  free,
	"sdallocx": free,
}

// needsReturn reports whether the end of calls of a function must be known: to measure the
// outermost call only, or to know the address of the memory.
func (s *Source) needsReturn(fn function) bool {
	return fn.program != free && fn.program != inGo && (s.live || fn.program != leaf)
}

// markers are functions that only one implementation of malloc has. Its malloc calls no
// other function of family, so its end need not be known. No call of its functions is left by a
// jump, nor does another coroutine run meanwhile.
var markers = []string{
	"__libc_start_main", // glibc, musl
	"mallctl",           // jemalloc
	"tc_malloc",         // tcmalloc
	"mi_malloc",         // mimalloc
}

// definitions are the functions that a file defines, by name.
type definitions map[string]definition

type definition struct {
	offset uint64
	local  bool // not visible to other files
}

// find returns the functions of allocators in a file, of which tables has the symbols, sorted by
// their offsets.
func find(f *elffile.File, tables elffile.Tables) ([]function, error) {
	defined, err := definitionsIn(f, tables)
	if err != nil {
		return nil, &unreadable{err}
	}
	if events.IsGo(f) {
		if err := defined.addGo(f); err != nil {
			return nil, err
		}
		if _, ok := defined[goMalloc]; ok {
			return defined.inGo(f)
		}
	}
	var found []function
	for _, prefix := range defined.prefixes() {
		found = append(found, defined.functions(prefix)...)
	}
	if len(found) > 0 && events.IsGo(f) {
		return nil, errCInGo
	}
	// Aliases have the same address.
	slices.SortFunc(found, func(a, b function) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.name, b.name))
	})
	return slices.CompactFunc(found, func(a, b function) bool { return a.offset == b.offset }), nil
}

// findReturns sets the return instructions of a function.
func (fn *function) findReturns(f *elffile.File, tables elffile.Tables) error {
	entry, ok := f.Address(fn.offset)
	if !ok {
		return returns.ErrBounds
	}
	finder := returns.Finder{File: f, Symbols: tables, Follow: func(uint64) bool { return true }, Partial: true}
	places, err := finder.Find(entry)
	if err != nil {
		return fmt.Errorf("the end of its calls is unknown: %w; a uretprobe would end the program if a call is left by an exception or a jump", err)
	}
	for _, at := range places {
		offset, ok := f.Offset(at)
		if !ok {
			return returns.ErrBounds
		}
		fn.returns = append(fn.returns, offset)
	}
	return nil
}

// errCInGo is the error for C allocators in Go programs.
var errCInGo = errors.New("it is a Go program with a C allocator, and uretprobes could crash Go programs")

// prefixes returns the prefix of the function names of each allocator: "" for malloc, or
// the prefix of jemalloc, such as "je_".
func (d definitions) prefixes() (prefixes []string) {
	if malloc, ok := d["malloc"]; ok && !malloc.local {
		prefixes = append(prefixes, "")
	}
	for name := range d {
		prefix, ok := strings.CutSuffix(name, "mallctl")
		if !ok || prefix == "" {
			continue
		}
		if _, ok := d[prefix+"malloc"]; ok {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// functions returns the functions of an allocator whose names have a prefix.
func (d definitions) functions(prefix string) (found []function) {
	isKnown := prefix != "" || slices.ContainsFunc(markers, func(name string) bool { _, ok := d[name]; return ok })
	for name, program := range family {
		at, ok := d[prefix+name]
		if !ok || at.local && prefix == "" {
			continue
		}
		if name == "malloc" && isKnown {
			program = leaf
		}
		found = append(found, function{name: prefix + name, offset: at.offset, program: program, isKnown: isKnown})
	}
	if prefix != "" {
		return found
	}
	for name, at := range d {
		switch {
		case at.local:
		case isOperator(name, "_Znwm", "_Znam"):
			by := throws
			if strings.HasSuffix(name, nothrow) {
				by = size
			}
			found = append(found, function{name: name, offset: at.offset, program: by})
		case isOperator(name, "_ZdlPv", "_ZdaPv"):
			found = append(found, function{name: name, offset: at.offset, program: free})
		}
	}
	return found
}

// nothrow ends the names of operators new that return NULL instead of throwing an exception.
const nothrow = "RKSt9nothrow_t"

// isOperator reports whether a name belongs to an operator new or delete of C++, with any
// arguments after the first.
func isOperator(name string, operators ...string) bool {
	return slices.ContainsFunc(operators, func(operator string) bool {
		rest, ok := strings.CutPrefix(name, operator)
		return ok && strings.Trim(strings.NewReplacer("St11align_val_t", "", nothrow, "").Replace(rest), "m") == ""
	})
}

// isInteresting reports whether a name can belong to a function of an allocator or of a
// marker. Files can have millions of others.
func isInteresting(name []byte) bool {
	switch {
	case bytes.HasPrefix(name, []byte("_Z")):
		return bytes.HasPrefix(name, []byte("_Znwm")) || bytes.HasPrefix(name, []byte("_Znam")) ||
			bytes.HasPrefix(name, []byte("_ZdlPv")) || bytes.HasPrefix(name, []byte("_ZdaPv"))
	case bytes.HasPrefix(name, []byte("runtime.")):
		return bytes.HasPrefix(name, []byte("runtime.malloc"))
	}
	return bytes.Contains(name, []byte("alloc")) || bytes.HasSuffix(name, []byte("free")) ||
		bytes.HasSuffix(name, []byte("memalign")) || bytes.HasSuffix(name, []byte("mallctl")) ||
		bytes.HasPrefix(name, []byte("__libc_start_main"))
}

// maxDefinitions limits the names to remember, which a crafted file can have millions of.
const maxDefinitions = 1 << 16

// definitionsIn returns the functions in a file with interesting names, of which tables has the
// symbols.
func definitionsIn(f *elffile.File, tables elffile.Tables) (definitions, error) {
	defined := definitions{}
	err := tables.Each(func(sym elffile.Symbol, nameOf func() []byte) bool {
		if sym.Section == elf.SHN_UNDEF || sym.Type != elf.STT_FUNC {
			return true
		}
		name := nameOf()
		if !isInteresting(name) {
			return true
		}
		offset, ok := f.Offset(sym.Value)
		if _, executable := f.Address(offset); !ok || !executable {
			return true
		}
		text, _, _ := strings.Cut(string(name), "@")
		local := sym.Binding == elf.STB_LOCAL
		if before, ok := defined[text]; !ok || before.local && !local {
			defined[text] = definition{offset, local}
		}
		return len(defined) < maxDefinitions
	})
	return defined, err
}
