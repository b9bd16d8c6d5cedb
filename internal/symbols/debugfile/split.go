package debugfile

import (
	"errors"
	"path"

	"fulgur/internal/symbols/elffile"
)

// DWO returns the split DWARF file called name (DW_AT_dwo_name) for a unit of b compiled in
// compDir (DW_AT_comp_dir). accept must return nil for it; it should compare the unit's ID.
// DWO tries the file's original path, and then its name and base name next to the binary,
// since binaries are often moved together with their .dwo files. The caller closes the file.
func (f *Finder) DWO(b *File, compDir, name string, accept func(*elffile.File) error) (*File, error) {
	s := &search{what: name + ", split debug info of " + b.Name()}
	dir := path.Dir(b.Path)
	names := []string{path.Join(dir, path.Base(name))}
	if path.IsAbs(name) {
		names = append([]string{name}, names...)
	} else {
		if path.IsAbs(compDir) {
			names = append([]string{path.Join(compDir, name)}, names...)
		}
		names = append(names, path.Join(dir, name))
	}
	return f.split(s, b, names, func(c *elffile.File) error { return errors.Join(sameMachine(c, b.File), accept(c)) })
}

// DWP returns the package of all split DWARF files of b: the path of the binary, or of its
// debug file if debug is not nil, with ".dwp" appended, or the same below /usr/lib/debug.
// Only the IDs of its units connect the package to the binary, so the caller must compare
// them. The caller closes the file.
func (f *Finder) DWP(b, debug *File) (*File, error) {
	s := &search{what: "package of split debug info of " + b.Name()}
	var names []string
	for _, of := range []*File{b, debug} {
		if of != nil && path.IsAbs(of.Path) {
			names = append(names, of.Path+".dwp")
		}
	}
	if path.IsAbs(b.Path) {
		names = append(names, path.Join(debugDir, b.Path+".dwp"))
	}
	return f.split(s, b, names, func(c *elffile.File) error { return sameMachine(c, b.File) })
}

// split opens the first acceptable file of names, below the roots for b.
func (f *Finder) split(s *search, b *File, names []string, accept func(*elffile.File) error) (*File, error) {
	for _, root := range f.roots(b.Root) {
		for _, name := range names {
			if !path.IsAbs(name) {
				continue // relative to an unknown directory
			}
			if found := s.open(root, name, accept); found != nil {
				return found, nil
			}
		}
	}
	return nil, s.err()
}

// sameMachine returns an error unless a and b have the same architecture.
func sameMachine(a, b *elffile.File) error {
	if a.Machine() != b.Machine() || a.WordSize() != b.WordSize() {
		return errors.New("is for another architecture: " + a.Machine().String())
	}
	return nil
}
