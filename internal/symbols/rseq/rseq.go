// Package rseq finds the restartable sequences of a file: code that the kernel aborts if it
// interrupts a thread there, as in tcmalloc and librseq.
//
// A breakpoint must not be in a restartable sequence. The thread executes the instruction under a
// uprobe elsewhere, so the kernel does not see that it is in a sequence, and does not abort it: the
// sequence then continues on another CPU, or after another thread's, and updates are lost. The
// signature before an abort handler must not change either, or the kernel kills the program.
//
// The descriptors of sequences (struct rseq_cs of the kernel's linux/rseq.h) are in the section
// __rseq_cs by convention, or __rseq_table in old programs; __rseq_cs_ptr_array has their addresses.
// Descriptors that are elsewhere, or that the program makes at run time, are not found.
package rseq

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"fulgur/internal/symbols/elffile"
)

// Reasons why a breakpoint must not be at a place.
var (
	ErrSequence  = errors.New("it is in a restartable sequence (rseq): with a breakpoint there, the kernel could not abort the sequence any more, and the program would lose updates")
	ErrSignature = errors.New("it is in the signature of a restartable sequence (rseq): with a breakpoint there, the kernel would kill the program")
)

// Parts of a descriptor, in bytes.
const (
	descriptorSize = 32
	startAt        = 8  // address of the first instruction
	lengthAt       = 16 // of the sequence, in bytes
	abortAt        = 24 // address of the abort handler
	// signatureSize is the size of the signature before an abort handler.
	signatureSize = 4
	pointerSize   = 8
)

// Limits on the contents of a file. Programs that inline sequences have some hundreds, in one section.
const (
	maxDescriptors = 1 << 16
	maxSections    = 16
)

// Sequences are the restartable sequences of a file.
type Sequences struct {
	file             *elffile.File
	code, signatures []span // by address, without overlaps
	breakpoint       uint64 // size, in bytes
}

// span is a range of link-time addresses, the end excluded.
type span struct{ start, end uint64 }

// Read reads the descriptors in a file, which must stay open. The error says why the sequences of the file are in doubt.
func Read(f *elffile.File) (*Sequences, error) {
	s, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("its restartable sequences (rseq) cannot be found: %w", err)
	}
	return s, nil
}

// Check returns an error if a breakpoint must not be at a link-time address.
func (s *Sequences) Check(address uint64) error {
	switch {
	case overlaps(s.code, span{address, address + 1}):
		return ErrSequence
	case overlaps(s.signatures, span{address, address + s.breakpoint}):
		return ErrSignature
	}
	return nil
}

// CheckOffset is [Sequences.Check] for the code at a file offset.
func (s *Sequences) CheckOffset(offset uint64) error {
	if address, ok := s.file.Address(offset); ok {
		return s.Check(address)
	}
	return nil
}

// overlaps reports whether one of the spans, which are in order, overlaps another one.
func overlaps(spans []span, with span) bool {
	i, _ := slices.BinarySearchFunc(spans, with.start, func(s span, start uint64) int {
		if s.end <= start {
			return -1
		}
		return 1
	})
	return i < len(spans) && spans[i].start < with.end
}

func read(f *elffile.File) (*Sequences, error) {
	sections, err := f.Sections()
	if err != nil {
		return nil, err
	}
	var tables, arrays []part
	for _, s := range sections {
		to, unit := &tables, uint64(descriptorSize)
		switch s.Name {
		case "__rseq_cs", "__rseq_table":
		case "__rseq_cs_ptr_array":
			to, unit = &arrays, pointerSize
		default:
			continue
		}
		switch {
		case s.Type == elf.SHT_NOBITS || s.Size == 0: // such as in a separate debug file
			continue
		case len(*to) == maxSections:
			return nil, f.Errorf(int64(s.Offset), "more than %d sections %s", maxSections, s.Name)
		case f.WordSize() != pointerSize:
			return nil, f.Errorf(int64(s.Offset), "section %s in a 32-bit file", s.Name)
		case s.Size%unit != 0:
			return nil, f.Errorf(int64(s.Offset), "section %s has %d bytes, not a multiple of %d", s.Name, s.Size, unit)
		}
		*to = append(*to, part{address: s.Addr, offset: s.Offset, size: s.Size})
	}
	if len(tables)+len(arrays) == 0 {
		return &Sequences{file: f}, nil
	}
	if err := load(f, slices.Concat(pointersTo(tables), pointersTo(arrays))); err != nil {
		return nil, err
	}
	elsewhere, err := described(f, arrays, tables)
	if err != nil {
		return nil, err
	}
	if err := load(f, pointersTo(elsewhere)); err != nil {
		return nil, err
	}
	return parse(f, slices.Concat(tables, elsewhere))
}

// part is a part of the file that is loaded at an address, as it is after relocation.
type part struct {
	address, offset, size uint64
	data                  []byte
}

func pointersTo(parts []part) (all []*part) {
	for i := range parts {
		all = append(all, &parts[i])
	}
	return all
}

// described returns the descriptors to which arrays of pointers point, without those in tables.
func described(f *elffile.File, arrays, tables []part) (found []part, err error) {
	seen := map[uint64]bool{}
	for _, a := range arrays {
		for b := a.data; len(b) > 0; b = b[pointerSize:] {
			to := binary.LittleEndian.Uint64(b)
			inTable := slices.ContainsFunc(tables, func(t part) bool { return to-t.address < t.size && (to-t.address)%descriptorSize == 0 })
			if inTable || to == 0 || seen[to] {
				continue
			}
			seen[to] = true
			offset, ok := f.Offset(to)
			if !ok {
				return nil, f.Errorf(int64(a.offset), "no descriptor of a restartable sequence at address %#x", to)
			}
			found = append(found, part{address: to, offset: offset, size: descriptorSize})
		}
	}
	return found, nil
}

// load reads parts of the file, and relocates them.
func load(f *elffile.File, parts []*part) error {
	slices.SortFunc(parts, func(a, b *part) int { return cmp.Compare(a.address, b.address) })
	left := uint64(maxDescriptors * descriptorSize)
	for i, p := range parts {
		switch {
		case p.size > left:
			return f.Errorf(int64(p.offset), "more than %d descriptors of restartable sequences", maxDescriptors)
		case i > 0 && p.address-parts[i-1].address < parts[i-1].size:
			return f.Errorf(int64(p.offset), "descriptors of restartable sequences overlap")
		}
		left -= p.size
		var err error
		if p.data, err = f.Bytes(int64(p.offset), p.size, "descriptors of restartable sequences"); err != nil {
			return err
		}
	}
	if len(parts) == 0 {
		return nil
	}
	var relative uint32
	switch f.Machine() {
	case elf.EM_X86_64:
		relative = uint32(elf.R_X86_64_RELATIVE)
	case elf.EM_AARCH64:
		relative = uint32(elf.R_AARCH64_RELATIVE)
	}
	// Without such a relocation, the file has the value itself: compact relocations (RELR) add to
	// it, and programs at a fixed address have none.
	var problem error
	err := f.EachRela(func(s *elffile.Section, r elffile.Rela) bool {
		i, _ := slices.BinarySearchFunc(parts, r.Offset, func(p *part, address uint64) int { return cmp.Compare(p.address, address+1) })
		if i--; i < 0 || r.Offset-parts[i].address >= parts[i].size {
			return true
		}
		p, at := parts[i], r.Offset-parts[i].address
		if r.Type != relative || p.size-at < pointerSize {
			problem = f.Errorf(int64(s.Offset), "an unknown relocation of the descriptor of a restartable sequence at address %#x", r.Offset)
			return false
		}
		binary.LittleEndian.PutUint64(p.data[at:], uint64(r.Addend))
		return true
	})
	return cmp.Or(err, problem)
}

// parse parses descriptors.
func parse(f *elffile.File, parts []part) (*Sequences, error) {
	s := &Sequences{file: f, breakpoint: 1}
	if f.Machine() == elf.EM_AARCH64 {
		s.breakpoint = 4
	}
	var zero [descriptorSize]byte
	for _, p := range parts {
		for at := uint64(0); at < p.size; at += descriptorSize {
			d := p.data[at : at+descriptorSize]
			if [descriptorSize]byte(d) == zero {
				continue // between the descriptors of two object files
			}
			version := binary.LittleEndian.Uint32(d)
			start, length, abort := binary.LittleEndian.Uint64(d[startAt:]), binary.LittleEndian.Uint64(d[lengthAt:]), binary.LittleEndian.Uint64(d[abortAt:])
			end := start + length
			if version != 0 || end < start || abort < signatureSize || !isCode(f, start) || !isCode(f, abort) {
				return nil, f.Errorf(int64(p.offset+at), "malformed descriptor of a restartable sequence")
			}
			if length > 0 {
				s.code = append(s.code, span{start, end})
			}
			s.signatures = append(s.signatures, span{abort - signatureSize, abort})
		}
	}
	s.code, s.signatures = merge(s.code), merge(s.signatures)
	return s, nil
}

// isCode reports whether the file has code for an address.
func isCode(f *elffile.File, address uint64) bool {
	offset, ok := f.Offset(address)
	if !ok {
		return false
	}
	_, ok = f.Address(offset)
	return ok
}

// merge sorts spans and joins those that overlap.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var merged []span
	for _, s := range spans {
		if last := len(merged) - 1; last >= 0 && s.start <= merged[last].end {
			merged[last].end = max(merged[last].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}
