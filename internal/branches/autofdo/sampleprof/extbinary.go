package sampleprof

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The extensible binary format: a magic number and a version as ULEB128, the number of
// sections and a table of them as 64-bit numbers, and the sections. All other numbers are
// ULEB128.
const (
	// magic is "SPROF42" and the number of the format (SPMagic).
	magic = 0x5350524f463432_04
	// version is SPVersion.
	version = 103

	sectionHeader = 4 * 8
)

// Sections (SecType).
const (
	sectionSummary         = 1
	sectionNames           = 2
	sectionFunctionOffsets = 4
	sectionProfiles        = 32
)

// Flags of sections. The upper half has flags that only one kind of section has.
const (
	flagUnique   = 4 << 32 // of names: some have the suffix uniqueSuffix
	flagFlow     = 4 << 32 // of the summary: flow-sensitive discriminators
	uniqueSuffix = ".__uniq."
)

// WriteBinary writes p in the extensible binary format.
func (p *Profile) WriteBinary(w io.Writer) error {
	b := &binaryWriter{index: map[string]uint64{}}
	for name, f := range p.Functions {
		b.index[name] = 0
		b.name(f)
	}
	names := slices.Sorted(maps.Keys(b.index))
	for i, name := range names {
		b.index[name] = uint64(i)
	}

	var nameFlags, summaryFlags uint64
	if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, uniqueSuffix) }) {
		nameFlags = flagUnique
	}
	if p.Flow {
		summaryFlags = flagFlow
	}
	profiles, offsets := b.profiles(p)
	header := binary.AppendUvarint(nil, magic)
	header = binary.AppendUvarint(header, version)
	sections := []section{
		{kind: sectionSummary, flags: summaryFlags, data: p.summarize().append(nil)},
		{kind: sectionNames, flags: nameFlags, data: appendNames(names)},
		{kind: sectionFunctionOffsets, data: offsets},
		{kind: sectionProfiles, data: profiles},
	}
	return writeSections(w, header, sections)
}

// section is a section of the file.
type section struct {
	kind, flags uint64
	data        []byte
}

// writeSections writes the header, the table of sections, and the sections.
func writeSections(w io.Writer, header []byte, sections []section) error {
	header = binary.LittleEndian.AppendUint64(header, uint64(len(sections)))
	at := uint64(len(header) + len(sections)*sectionHeader)
	for _, s := range sections {
		for _, n := range [...]uint64{s.kind, s.flags, at, uint64(len(s.data))} {
			header = binary.LittleEndian.AppendUint64(header, n)
		}
		at += uint64(len(s.data))
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, s := range sections {
		if _, err := w.Write(s.data); err != nil {
			return err
		}
	}
	return nil
}

// append appends the section of the summary.
func (s *summary) append(b []byte) []byte {
	for _, n := range [...]uint64{s.total, s.max, s.maxHead, s.counts, s.functions, uint64(len(s.cutoffs))} {
		b = binary.AppendUvarint(b, n)
	}
	for _, c := range s.cutoffs {
		for _, n := range [...]uint64{c.share, c.minCount, c.counts} {
			b = binary.AppendUvarint(b, n)
		}
	}
	return b
}

// appendNames returns the section of names, each ending with a NUL.
func appendNames(names []string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(names)))
	for _, name := range names {
		b = append(append(b, name...), 0)
	}
	return b
}

// binaryWriter encodes profiles of functions.
type binaryWriter struct {
	index map[string]uint64 // of each name
	b     []byte
}

// name adds all names in f, whose depth is bounded.
func (b *binaryWriter) name(f *Function) {
	for _, r := range f.Body {
		for target := range r.Targets {
			b.index[target] = 0
		}
	}
	for c, callee := range f.Inlined {
		b.index[c.Callee] = 0
		b.name(callee)
	}
}

func (b *binaryWriter) number(n uint64) { b.b = binary.AppendUvarint(b.b, n) }

// profiles returns the section of profiles, and the section with their offsets in it.
func (b *binaryWriter) profiles(p *Profile) (profiles, offsets []byte) {
	offsets = binary.AppendUvarint(nil, uint64(len(p.Functions)))
	for _, name := range p.sorted() {
		offsets = binary.AppendUvarint(offsets, b.index[name])
		offsets = binary.AppendUvarint(offsets, uint64(len(b.b)))
		b.number(p.Functions[name].Head)
		b.function(name, p.Functions[name])
	}
	return b.b, offsets
}

// function appends a function, whose depth is bounded.
func (b *binaryWriter) function(name string, f *Function) {
	b.number(b.index[name])
	b.number(f.Total)
	b.number(uint64(len(f.Body)))
	for _, l := range f.locations() {
		r := f.Body[l]
		b.location(l)
		b.number(r.Samples)
		b.number(uint64(len(r.Targets)))
		for _, target := range r.targets() {
			b.number(b.index[target])
			b.number(r.Targets[target])
		}
	}
	b.number(uint64(len(f.Inlined)))
	for _, c := range f.calls() {
		b.location(c.Location)
		b.function(c.Callee, f.Inlined[c])
	}
}

func (b *binaryWriter) location(l Location) {
	b.number(uint64(l.Line))
	b.number(uint64(l.Discriminator))
}

// Format is a format of sample profiles.
type Format string

// The formats.
const (
	Text   Format = "text"
	Binary Format = "extbinary"
)

// Write writes p in a format.
func (p *Profile) Write(w io.Writer, f Format) error {
	switch f {
	case Text:
		return p.WriteText(w)
	case Binary:
		return p.WriteBinary(w)
	}
	return fmt.Errorf("unknown format of sample profiles: %q", f)
}
