package symbolize

import (
	"errors"
	"fmt"
	"path"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/dwarf"
	"fulgur/internal/symbols/elffile"
)

// maxSplitProblems bounds the reports about files that exist but are unusable. If one file is
// unusable, usually all are.
const maxSplitProblems = 3

// splitFiles tracks the requested files of split DWARF. They usually exist only on the
// machine that compiled them, so missing files are counted rather than reported one by one.
type splitFiles struct {
	missing  map[string]bool // by path, for all requested files
	problems []error         // the first files that exist but are unusable
}

// add records problems, up to a limit.
func (s *splitFiles) add(problems []error) {
	s.problems = append(s.problems, problems[:min(len(problems), maxSplitProblems-len(s.problems))]...)
}

// err returns one error for all missing files of binary, and one for each recorded
// problem.
func (s *splitFiles) err(binary string) error {
	first, missing := "", 0
	for name, is := range s.missing {
		if !is {
			continue
		}
		if missing++; first == "" || name < first {
			first = name
		}
	}
	if missing == 0 {
		return errors.Join(s.problems...)
	}
	return errors.Join(append([]error{fmt.Errorf(
		"%s: %d of %d split debug files missing (first: %s); no inlined functions there; keep the .dwo files or make a .dwp",
		binary, missing, len(s.missing), first)}, s.problems...)...)
}

// splitProblems returns [splitFiles.err] of the binary.
func (d *debugInfo) splitProblems() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.splits.err(d.binary.Name())
}

// noteSplit records whether the named file is missing, and why an existing file was
// rejected.
func (d *debugInfo) noteSplit(name string, missing bool, problems ...error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.splits.missing == nil {
		d.splits.missing = map[string]bool{}
	}
	d.splits.missing[name] = missing
	d.splits.add(problems)
}

// split returns the sections of the file with the rest of a unit: a package of all units, or
// a file for this unit. It returns nil if there is neither.
func (d *debugInfo) split(u dwarf.SplitUnit) (*dwarf.Sections, error) {
	name := u.DwoName
	if !path.IsAbs(name) {
		name = path.Join(u.CompDir, name)
	}
	if d.finder == nil {
		d.noteSplit(name, true)
		return nil, nil
	}
	if pack := d.pack(); pack != nil {
		return pack, nil
	}
	file, err := d.finder.DWO(d.binary, u.CompDir, u.DwoName, func(f *elffile.File) error {
		if f.Section(".debug_info.dwo") == nil {
			return errors.New("no split debug info in it")
		}
		return nil
	})
	if errors.Is(err, debugfile.ErrNotFound) {
		d.noteSplit(name, true, debugfile.Problems(err)...)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d.noteSplit(name, false)
	return dwarfSections(d.keep(file).File, ".dwo", nil)
}

// openPackage opens the package of split DWARF. It returns nil if there is no readable
// package.
func (d *debugInfo) openPackage() *dwarf.Sections {
	file, err := d.finder.DWP(d.binary, d.file)
	if err == nil {
		var sections *dwarf.Sections
		if sections, err = dwarfSections(d.keep(file).File, ".dwo", nil); err == nil {
			return sections
		}
	}
	problems := []error{err}
	if errors.Is(err, debugfile.ErrNotFound) {
		problems = debugfile.Problems(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.splits.add(problems)
	return nil
}
