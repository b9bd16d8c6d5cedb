package pprof

import (
	"path"
	"strings"

	"fulgur/internal/profile"
)

// mainMapping returns the mapping that represents the profile: for a whole system, the
// one whose code ran most, otherwise the program of the process with the most samples. It
// is 0 if there is none.
func mainMapping(p *profile.Profile, system bool) profile.MappingID {
	if system {
		ran := make([]int64, len(p.Mappings))
		for _, s := range p.Samples {
			ran[p.Frames[p.Stacks[s.Stack].Frame].Mapping] += s.Values[0]
		}
		return heaviest(p, ran, func(string) bool { return true })
	}
	byPID := map[int]int64{}
	var main int
	for _, s := range p.Samples {
		pid := p.Tasks[s.Task].PID
		byPID[pid] += s.Values[0]
		if n := byPID[pid]; main == 0 || n > byPID[main] || n == byPID[main] && pid < main {
			main = pid
		}
	}
	// The program is in most stacks, but is seldom their leaf.
	within := make([]int64, len(p.Mappings))
	counted := make([]int, len(p.Mappings)) // the last sample, from 1, counted in within
	for i, s := range p.Samples {
		if p.Tasks[s.Task].PID != main {
			continue
		}
		for at := s.Stack; at != 0; at = p.Stacks[at].Parent {
			if m := p.Frames[p.Stacks[at].Frame].Mapping; counted[m] != i+1 {
				counted[m] = i + 1
				within[m] += s.Values[0]
			}
		}
	}
	if m := heaviest(p, within, isProgram); m != 0 {
		return m
	}
	return heaviest(p, within, profile.IsFile)
}

// heaviest returns the mapping with the highest weight among the accepted paths, or 0 if
// none has any.
func heaviest(p *profile.Profile, weights []int64, accept func(path string) bool) profile.MappingID {
	var best profile.MappingID
	var weight int64
	for id := 1; id < len(weights); id++ {
		if weights[id] > weight && accept(p.Mappings[id].Path) {
			best, weight = profile.MappingID(id), weights[id]
		}
	}
	return best
}

// isProgram reports whether a file is not a shared library, by its name.
func isProgram(name string) bool {
	base := path.Base(name)
	return profile.IsFile(name) && !strings.HasSuffix(base, ".so") && !strings.Contains(base, ".so.")
}
