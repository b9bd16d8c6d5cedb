package symbolize

import (
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"strings"

	"fulgur/internal/symbols/callframe"
)

// maxBetween is the maximum size in bytes of code between two functions that counts as one
// function. Assembly without call frame information is shorter. Larger parts, such as nearly
// all of Chromium, were compiled without call frame information and contain many functions.
const maxBetween = 4 << 10

// lookupBounds finds the functions at addrs that have no symbol. It names them after their
// start address, so that a function has the same name in every run of a build.
//
// A function begins where its FDE does. Code without an FDE begins where the function
// before it ends, or at the start of its section, and ends where the next function begins.
func (e *ELF) lookupBounds(addrs []uint64, frames [][]Frame) error {
	bounds, err := callframe.Find(e.file, addrs)
	var between []int
	for i, b := range bounds {
		if b.Start != 0 {
			frames[i] = e.noSymbol(b.Start, addrs[i])
		} else if b.Below != 0 || b.Above != 0 {
			between = append(between, i)
		}
	}
	if len(between) == 0 {
		return err
	}
	open := make([]uint64, len(between))
	for i, at := range between {
		open[i] = addrs[at]
	}
	ends, symbolsErr := e.symbolEnds(open)
	for i, at := range between {
		low, high, ok := e.code(open[i])
		if !ok {
			continue
		}
		low = max(low, bounds[at].Below, ends[i])
		if above := bounds[at].Above; above != 0 {
			high = min(high, above)
		}
		if high-low <= maxBetween {
			frames[at] = e.noSymbol(low, open[i])
		}
	}
	return errors.Join(err, symbolsErr)
}

// noSymbol returns the frame at addr in the function without a symbol at start.
func (e *ELF) noSymbol(start, addr uint64) []Frame {
	file := path.Base(strings.TrimSuffix(e.file.Name(), " (deleted)"))
	name := valid(fmt.Sprintf("%s+%#x", strings.Trim(file, "[]"), start))
	return []Frame{{Name: name, SystemName: name, Offset: addr - start, NoSymbol: true}}
}

// code returns the range of the executable section that contains addr. In a file without
// section headers, it returns the range of the segment.
func (e *ELF) code(addr uint64) (low, high uint64, ok bool) {
	sections, _ := e.file.Sections() // LookupBatch returned the error
	for _, s := range sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Holds(addr) {
			return s.Addr, s.Addr + s.Size, true
		}
	}
	if len(sections) > 0 {
		return 0, 0, false
	}
	for _, s := range e.file.Segments() {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && addr-s.Addr < s.FileSize {
			return s.Addr, s.Addr + s.FileSize, true
		}
	}
	return 0, 0, false
}

// symbolEnds returns, for each of addrs, the end of the last symbol before it, or 0. It
// requires that no symbol covers addrs.
func (e *ELF) symbolEnds(addrs []uint64) ([]uint64, error) {
	ends := make([]uint64, len(addrs))
	tables, err := e.symbolTables()
	p := newSymbolPass(addrs)
	err = errors.Join(err, p.run(tables))
	end := uint64(0)
	for i := range addrs {
		if s := p.nearest[i]; s.table != nil {
			end = s.start + s.size
		}
		ends[i] = end
	}
	return ends, err
}
