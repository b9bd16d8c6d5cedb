package symbolize

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"fulgur/internal/symbols/elffile"
)

// pltSuffix is appended to the name of the function that a stub calls, as in other tools.
const pltSuffix = "@plt"

// lookupPLT names addrs in the procedure linkage table. If a resolver chooses the function of
// a stub, the stub gets the name of the resolver's symbol, which is the function's name, or
// without a symbol the resolver's address, as in objdump.
func (e *ELF) lookupPLT(addrs []uint64, frames [][]Frame) error {
	if !e.inPLT(addrs) {
		return nil
	}
	entries, err := e.pltEntries()
	if err != nil {
		return err
	}
	var resolvers []uint64
	for i, addr := range addrs {
		if s := pltEntry(entries, addr); s != nil {
			if s.Name == "" {
				resolvers = append(resolvers, s.Resolver)
				continue
			}
			frames[i] = []Frame{newStubFrame(NewFrame([]byte(s.Name), addr-s.Addr, e.opts))}
		}
	}
	if len(resolvers) == 0 {
		return nil
	}
	slices.Sort(resolvers)
	resolvers = slices.Compact(resolvers)
	names := make([][]Frame, len(resolvers))
	err = e.lookupSymbols(resolvers, names)
	nameFrames(e.ctx, names, e.opts)
	for i, addr := range addrs {
		s := pltEntry(entries, addr)
		if s == nil || s.Name != "" {
			continue
		}
		name := fmt.Sprintf("*ABS*+%#x", s.Resolver)
		f := Frame{Name: name, SystemName: name}
		n, _ := slices.BinarySearch(resolvers, s.Resolver)
		if found := names[n]; len(found) == 1 && found[0].Offset == 0 {
			f = found[0]
		}
		f.Offset = addr - s.Addr
		frames[i] = []Frame{newStubFrame(f)}
	}
	return err
}

// maxKeptPLT limits the memory of the stubs that an [ELF] keeps, in bytes.
const maxKeptPLT = 256 << 10

// pltEntries returns the stubs of the procedure linkage table. Finding them takes a pass over all
// relocations, so e keeps them for later lookups, unless there are very many.
func (e *ELF) pltEntries() ([]elffile.PLTEntry, error) {
	if e.plt != nil {
		return e.plt, nil
	}
	entries, err := e.file.PLT()
	if err != nil {
		return nil, err
	}
	size := 0
	for _, s := range entries {
		size += int(unsafe.Sizeof(s)) + len(s.Name)
	}
	if size <= maxKeptPLT {
		e.plt = entries
	}
	return entries, nil
}

// newStubFrame returns the frame of a stub that calls the function in f.
func newStubFrame(f Frame) Frame {
	f.Name += pltSuffix
	f.SystemName += pltSuffix
	return f
}

// inPLT reports whether any of the sorted addrs is in a procedure linkage table, which most
// batches need not read.
func (e *ELF) inPLT(addrs []uint64) bool {
	sections, err := e.file.Sections()
	if err != nil {
		return false
	}
	for _, s := range sections {
		if !s.IsPLT() {
			continue
		}
		if i, _ := slices.BinarySearch(addrs, s.Addr); i < len(addrs) && s.Holds(addrs[i]) {
			return true
		}
	}
	return false
}

// pltEntry returns the entry that contains addr, or nil. entries must be sorted.
func pltEntry(entries []elffile.PLTEntry, addr uint64) *elffile.PLTEntry {
	i, found := slices.BinarySearchFunc(entries, addr, func(e elffile.PLTEntry, addr uint64) int { return cmp.Compare(e.Addr, addr) })
	if !found {
		i--
	}
	if i < 0 || addr-entries[i].Addr >= entries[i].Size {
		return nil
	}
	return &entries[i]
}
