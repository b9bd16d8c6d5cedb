package symbolize

import (
	"context"
	"errors"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/dwarf"
	"fulgur/internal/symbols/elffile"
)

// unitBudget bounds the memory for cached units of a file's debug information, in bytes. It
// is small because a batch visits each unit only once. Keeping units for the next batch would
// not save time, and would cost memory while names are demangled.
const unitBudget = 1 << 20

// debugInfo is the debug information of a file, from the file itself and from separate
// files.
type debugInfo struct {
	// file is the separate debug file, or nil if there is none or none was needed.
	file *debugfile.File
	data *dwarf.Data // nil if there is none or Options.NoInlines is set
	// problems holds the reasons why debug files were rejected.
	problems []error

	ctx    context.Context // stops the decompression of sections
	binary *debugfile.File
	finder *debugfile.Finder      // nil to use only the binary
	pack   func() *dwarf.Sections // its result is nil if there is none

	mu     sync.Mutex
	open   []*debugfile.File // to close
	splits splitFiles
}

// openDebugInfo finds and opens the debug information of binary. The result is usable
// even on error. Missing debug information is not an error.
func openDebugInfo(ctx context.Context, finder *debugfile.Finder, binary *debugfile.File, opts Options) (*debugInfo, error) {
	return openRelocated(ctx, finder, binary, nil, opts)
}

// openRelocated is like [openDebugInfo], but relocates the file's own debug information
// if by is not nil.
func openRelocated(ctx context.Context, finder *debugfile.Finder, binary *debugfile.File, by *relocator, opts Options) (*debugInfo, error) {
	d := &debugInfo{ctx: ctx, binary: binary, finder: finder}
	binary.SetContext(ctx)
	d.pack = sync.OnceValue(d.openPackage)
	described := binary
	if hasInfo := binary.Section(".debug_info") != nil; finder != nil && (!hasSymbols(binary.File) || !hasInfo && !opts.NoInlines) {
		if file, err := finder.Debug(ctx, binary); err == nil {
			d.file = d.keep(file)
		} else {
			d.problems = debugfile.Problems(err)
		}
		if !hasInfo {
			described = d.file
		}
	}
	if opts.NoInlines || described == nil || described.Section(".debug_info") == nil {
		return d, nil
	}
	err := d.openDWARF(ctx, described, by)
	return d, err
}

// openDWARF opens the DWARF in file.
func (d *debugInfo) openDWARF(ctx context.Context, file *debugfile.File, by *relocator) error {
	sections, err := dwarfSections(file.File, "", by)
	errs := []error{err}
	if d.finder != nil {
		shared, err := d.finder.Alt(ctx, file)
		errs = append(errs, err)
		if shared != nil {
			sections.Alt, err = dwarfSections(d.keep(shared).File, "", nil)
			errs = append(errs, err)
		}
	}
	d.data, err = dwarf.Open(sections, dwarf.Options{Context: ctx, Budget: unitBudget, Split: d.split})
	return errors.Join(append(errs, err)...)
}

// keep closes file along with the others.
func (d *debugInfo) keep(file *debugfile.File) *debugfile.File {
	file.SetContext(d.ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = append(d.open, file)
	return file
}

// close closes all files except the binary.
func (d *debugInfo) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, file := range d.open {
		errs = append(errs, file.Close())
	}
	d.open = nil
	return errors.Join(errs...)
}

// dwarfSections opens the sections of f, relocated if by is not nil. suffix is the suffix
// of section names in split DWARF. It skips unreadable sections.
func dwarfSections(f *elffile.File, suffix string, by *relocator) (*dwarf.Sections, error) {
	s := &dwarf.Sections{Name: f.Name()}
	var errs []error
	for _, section := range []struct {
		name string
		to   *dwarf.Section
	}{
		{".debug_info" + suffix, &s.Info},
		{".debug_abbrev" + suffix, &s.Abbrev},
		{".debug_aranges", &s.Aranges},
		{".debug_line" + suffix, &s.Line},
		{".debug_line_str", &s.LineStr},
		{".debug_str" + suffix, &s.Str},
		{".debug_str_offsets" + suffix, &s.StrOffsets},
		{".debug_addr", &s.Addr},
		{".debug_ranges", &s.Ranges},
		{".debug_rnglists" + suffix, &s.RngLists},
		{".debug_cu_index", &s.CUIndex},
	} {
		found := f.Section(section.name)
		if found == nil {
			continue
		}
		contents, err := openSection(found, by)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		*section.to = contents
	}
	return s, errors.Join(errs...)
}

// openSection opens a section, relocated if by is not nil.
func openSection(s *elffile.Section, by *relocator) (dwarf.Section, error) {
	contents, err := s.Lazy()
	if err != nil {
		return nil, err // not a nil reader in an interface
	}
	if by == nil {
		return contents, nil
	}
	return by.section(s, contents)
}

// describe adds debug information to frames: inlined functions, files and lines. Before the
// call, frames holds the symbol at each of addrs, if there is one. Afterwards, some frames
// have only a linker name.
func (d *debugInfo) describe(addrs []uint64, frames [][]Frame) error {
	if d.data == nil {
		return nil
	}
	chains, err := d.data.LookupBatch(addrs)
	for i, chain := range chains {
		if len(chain) > 0 {
			frames[i] = describe(chain, frames[i])
		}
	}
	return errors.Join(err, d.splitProblems())
}

// describe returns chain as frames. The symbol, if any, provides the start and name of the
// outermost function. If a function has several names, only symbol tables have the well-known
// one; debug information has the name used in compilation, and for C it lacks the compiler's
// suffix for a part of a function. So a function has the same name with and without debug
// information, as in llvm-symbolizer.
func describe(chain []dwarf.Frame, symbol []Frame) []Frame {
	frames := make([]Frame, len(chain))
	last := len(chain) - 1
	if len(symbol) == 1 {
		frames[last] = symbol[0]
	}
	offset := frames[last].Offset
	for i, c := range chain {
		f := &frames[i]
		f.File, f.Line, f.Offset, f.Inlined = valid(c.File), int(c.Line), offset, c.Inlined
		if c.Function == nil {
			continue
		}
		f.StartLine = c.Function.StartLine
		switch {
		case f.SystemName != "":
		case c.Function.Linkage:
			f.SystemName = c.Function.Name
		default:
			f.Name = valid(c.Function.Name)
			f.SystemName = f.Name
		}
	}
	if last == 0 && frames[0].SystemName == "" {
		return nil // only a line, without a name
	}
	return frames
}
