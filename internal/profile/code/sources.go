package code

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"fulgur/internal/profile"
)

// maxSources bounds the total size of the source files read for a profile, in bytes.
const maxSources = 256 << 20

// maxProofs is the number of addresses of a mapping at which to look for a source file.
const maxProofs = 16

// Sources returns the texts of the source files of p's functions, by their names in the
// debug information: the files returned by [Library.Named]. problems has one error for
// each unreadable file, those without an absolute path last: they cannot be found on any machine.
func (l *Library) Sources(p *profile.Profile) (texts map[string]string, problems []error) {
	named, problems := l.Named(p)
	texts = map[string]string{}
	left := maxSources
	files := slices.Sorted(maps.Keys(named))
	slices.SortStableFunc(files, func(a, b string) int {
		switch {
		case path.IsAbs(a) == path.IsAbs(b):
			return 0
		case path.IsAbs(a):
			return -1
		}
		return 1
	})
	for _, file := range files {
		source, err := readSource(file)
		if left -= len(source.Text); err == nil && left < 0 {
			err = fmt.Errorf("%s: more than %d MiB of sources", file, maxSources>>20)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		texts[file] = source.Text
	}
	return texts, problems
}

// Named returns the source files of p's functions that the debug information mentions at
// their addresses in p. problems has one error for each of the others, and for what could
// not be read.
func (l *Library) Named(p *profile.Profile) (named map[string]bool, problems []error) {
	type proof struct {
		address uint64
		file    string
	}
	byMapping := map[profile.MappingID][]proof{}
	tried := map[profile.MappingID]map[string]int{}
	named = map[string]bool{}
	missing := map[string]bool{}
	for _, f := range p.Frames {
		file := p.Functions[f.Function].File
		if file == "" || f.Mapping == 0 || !path.IsAbs(p.Mappings[f.Mapping].Path) {
			continue
		}
		if tried[f.Mapping] == nil {
			tried[f.Mapping] = map[string]int{}
		}
		if tried[f.Mapping][file]++; tried[f.Mapping][file] > maxProofs {
			continue
		}
		missing[file] = true
		byMapping[f.Mapping] = append(byMapping[f.Mapping], proof{f.Call(), file})
	}
	for _, id := range slices.Sorted(maps.Keys(byMapping)) {
		proofs := byMapping[id]
		file, err := l.File(p.Mappings[id].Path, p.Mappings[id].BuildID)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		slices.SortFunc(proofs, func(a, b proof) int { return cmp.Compare(a.address, b.address) })
		addresses := make([]uint64, len(proofs))
		for i, at := range proofs {
			addresses[i] = at.address
		}
		found, err := file.LookupBatch(addresses)
		if err != nil {
			problems = append(problems, err)
		}
		for i, at := range proofs {
			if missing[at.file] && names(found[i], at.file) {
				named[at.file] = true
				delete(missing, at.file)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(missing)) {
		problems = append(problems, fmt.Errorf("%s: %w", file, ErrNotNamed))
	}
	return named, problems
}
