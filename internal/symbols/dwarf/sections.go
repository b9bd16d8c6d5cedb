package dwarf

import (
	"errors"
	"fmt"
	"io"
)

// Section is the uncompressed content of one section, nil if a file has none.
// It must be safe for concurrent use.
type Section interface {
	io.ReaderAt
	// Size is the number of bytes in the section.
	Size() int64
}

// Sections is the debug information of one file. Those of a .dwo or .dwp
// file are given without the ".dwo" that ends their names.
type Sections struct {
	// Name is the file's name, for errors.
	Name string

	Info       Section // .debug_info
	Abbrev     Section // .debug_abbrev
	Aranges    Section // .debug_aranges
	Line       Section // .debug_line
	LineStr    Section // .debug_line_str
	Str        Section // .debug_str
	StrOffsets Section // .debug_str_offsets
	Addr       Section // .debug_addr
	Ranges     Section // .debug_ranges
	RngLists   Section // .debug_rnglists
	CUIndex    Section // .debug_cu_index, which makes it a package (.dwp)

	// Alt is the file that dwz moved shared entries to, as named by
	// .gnu_debugaltlink or .debug_sup; nil if there is none.
	Alt *Sections
}

// size is the number of bytes in all sections.
func (s *Sections) size() int64 {
	n := int64(0)
	for _, sec := range [...]Section{
		s.Info, s.Abbrev, s.Aranges, s.Line, s.LineStr, s.Str,
		s.StrOffsets, s.Addr, s.Ranges, s.RngLists,
	} {
		if sec != nil {
			n += sec.Size()
		}
	}
	return n
}

// A FormatError reports bytes that DWARF does not allow.
type FormatError struct {
	// File is the name of the file, as in [Sections].
	File string
	// Section is the name of the section.
	Section string
	// Offset is where in the section the faulty structure begins, in bytes.
	Offset uint64
	// Problem says what is wrong there.
	Problem string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s: %s at offset %#x", e.File, e.Section, e.Problem, e.Offset)
}

// maxErrors is the number of errors that one call reports: a broken file has
// one for every unit.
const maxErrors = 8

// problems collects the errors of one call.
type problems struct {
	errs []error
	more int
}

func (p *problems) add(err error) {
	switch {
	case err == nil:
	case len(p.errs) < maxErrors:
		p.errs = append(p.errs, err)
	default:
		p.more++
	}
}

func (p *problems) err() error {
	if p.more > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("and %d more errors like these", p.more))...)
	}
	return errors.Join(p.errs...)
}
