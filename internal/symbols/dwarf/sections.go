package dwarf

import (
	"errors"
	"fmt"
	"io"
)

// Section is the uncompressed contents of a section, or nil if a file does not have it.
// It must be safe for concurrent use.
type Section interface {
	io.ReaderAt
	// Size returns the section's size in bytes.
	Size() int64
}

// Sections holds the debug information of a file. For a .dwo or .dwp file, the suffix
// ".dwo" of section names is omitted.
type Sections struct {
	// Name is the file name for errors.
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
	CUIndex    Section // .debug_cu_index, which only packages (.dwp) have

	// Alt is the file to which dwz moved shared entries, named by .gnu_debugaltlink or
	// .debug_sup. It is nil if there is none.
	Alt *Sections
}

// size returns the total size of the sections in bytes.
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

// FormatError reports bytes that violate the DWARF format.
type FormatError struct {
	// File is the name of the file, as in [Sections].
	File string
	// Section is the name of the section.
	Section string
	// Offset is the start of the malformed structure in the section, in bytes.
	Offset uint64
	// Problem describes the error.
	Problem string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s: %s at offset %#x", e.File, e.Section, e.Problem, e.Offset)
}

// maxErrors is the maximum number of errors that a call returns. A broken file may have
// one for every unit.
const maxErrors = 8

// problems collects the errors of a call.
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
