package code

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"fulgur/internal/profile"
)

// mostSources bounds the source files that are read for one profile, in bytes.
const mostSources = 256 << 20

// mostProofs is at how many addresses of a mapping a source file is looked for.
const mostProofs = 16

// Sources returns the texts of the source files that the functions of p are in,
// by the names that the debug information has for them: those that it names at
// the addresses where p has them. What could not be read is told, each file
// once.
func (l *Library) Sources(p *profile.Profile) (texts map[string]string, problems []error) {
	type proof struct {
		address uint64
		file    string
	}
	byMapping := map[profile.MappingID][]proof{}
	tried := map[profile.MappingID]map[string]int{}
	missing := map[string]error{}
	for _, f := range p.Frames {
		file := p.Functions[f.Function].File
		if file == "" || f.Mapping == 0 || !path.IsAbs(p.Mappings[f.Mapping].Path) {
			continue
		}
		if tried[f.Mapping] == nil {
			tried[f.Mapping] = map[string]int{}
		}
		if tried[f.Mapping][file]++; tried[f.Mapping][file] > mostProofs {
			continue
		}
		missing[file] = fmt.Errorf("%s: %w", file, ErrNotNamed)
		// A frame does not tell whether it calls: its address is then past the
		// call.
		byMapping[f.Mapping] = append(byMapping[f.Mapping], proof{f.Address, file}, proof{max(f.Address, 1) - 1, file})
	}
	texts = map[string]string{}
	left := mostSources
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
			if missing[at.file] == nil || !names(found[i], at.file) {
				continue
			}
			source, err := readSource(at.file)
			if left -= len(source.Text); err == nil && left < 0 {
				err = errors.New("more than " + fmt.Sprint(mostSources>>20) + " MiB of sources")
			}
			if missing[at.file] = err; err == nil {
				texts[at.file] = source.Text
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(missing)) {
		if err := missing[file]; err != nil {
			problems = append(problems, err)
		}
	}
	return texts, problems
}
