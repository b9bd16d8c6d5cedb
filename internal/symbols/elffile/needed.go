package elffile

import (
	"debug/elf"
	"strings"
)

// maxDynamic is the maximum number of bytes that are read of the dynamic section. Large programs have
// a few hundred entries of 16 bytes.
const maxDynamic = 64 << 10

// DynamicEntry is an entry of the dynamic section.
type DynamicEntry struct {
	Addr  uint64 // link-time address of the entry
	Tag   elf.DynTag
	Value uint64
}

// Dynamic returns the entries of the dynamic section (PT_DYNAMIC) before DT_NULL. It returns none if
// the file has no such section, and omits entries after the first 64 KiB.
func (f *File) Dynamic() (entries []DynamicEntry, err error) {
	for _, s := range f.segments {
		if s.Type != elf.PT_DYNAMIC {
			continue
		}
		b, err := f.Bytes(int64(s.Offset), min(s.FileSize, maxDynamic), "dynamic section")
		if err != nil {
			return nil, err
		}
		word := f.WordSize()
		for at := 0; at+2*word <= len(b); at += 2 * word {
			e := DynamicEntry{s.Addr + uint64(at), elf.DynTag(f.Word(b[at:])), f.Word(b[at+word:])}
			if e.Tag == elf.DT_NULL {
				break
			}
			entries = append(entries, e)
		}
		return entries, nil
	}
	return nil, nil
}

// Needs reports whether the file needs a library (DT_NEEDED) whose name begins with prefix.
func (f *File) Needs(prefix string) (bool, error) {
	entries, err := f.Dynamic()
	if err != nil {
		return false, err
	}
	var strs, size uint64
	for _, e := range entries {
		switch e.Tag {
		case elf.DT_STRTAB:
			strs = e.Value
		case elf.DT_STRSZ:
			size = e.Value
		}
	}
	off, ok := f.Offset(strs)
	if !ok {
		return false, nil
	}
	names := f.Strings(off, size)
	for _, e := range entries {
		if e.Tag == elf.DT_NEEDED && strings.HasPrefix(string(names.At(e.Value)), prefix) {
			return true, nil
		}
	}
	return false, nil
}
