package naming

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile"
)

// maxRemedies limits the files without symbols that are listed.
const maxRemedies = 5

// maxFindable limits the files without symbols whose packages FindPackages finds, before it is known
// which files are listed.
const maxFindable = 50

// maxLacking limits the files without symbols that are counted.
const maxLacking = 1000

// stripped is a file that lacks symbols.
type stripped struct {
	debugfile.Stripped
	problems []error // errors of rejected debug files
}

// Lacking holds the files without symbols, with the number of samples that they
// affect.
type Lacking map[debugfile.Stripped]*hurt

type hurt struct {
	by      *stripped
	samples uint64
	exports bool // as in [profile.Stripped]
}

// Add adds the files of n, with the samples that they affect. If there are already
// maxLacking files, it ignores new ones.
func (l Lacking) Add(n *Names, samples iter.Seq2[stacks.Sample, stacks.Values]) {
	unnamed := n.unnamedSamples(samples)
	exports := map[stacks.CodeID]bool{}
	for i, frame := range n.store.Frames {
		exports[frame.Code] = exports[frame.Code] || named(n.found[i])
	}
	// Of equal files, the first one counts, as in [Names.FindPackages].
	for code, by := range n.stripped {
		samples, hurts := unnamed[stacks.CodeID(code)]
		if by == nil || !hurts {
			continue
		}
		key := by.known()
		known := l[key]
		switch {
		case known != nil:
			known.samples += samples
			known.exports = known.exports || exports[stacks.CodeID(code)]
			if by.Root == "/" {
				known.by = by // so that its packages can be searched
			}
		case len(l) < maxLacking:
			l[key] = &hurt{by, samples, exports[stacks.CodeID(code)]}
		}
	}
}

// FindPackages finds the packages of the files of n that lack symbols, at most maxFindable, so that
// [Lacking.Stripped] need not search for them. Once sampling has ended, it begins no search.
func (n *Names) FindPackages() {
	var files []debugfile.Stripped
	listed := map[debugfile.Stripped]bool{}
	for _, s := range n.stripped {
		if s == nil || listed[s.known()] {
			continue
		}
		if len(files) == maxFindable {
			break
		}
		listed[s.known()] = true
		files = append(files, s.Stripped)
	}
	n.finder.FindPackages(files, n.Ahead)
}

// known returns the identity of a file: a build is the same in all containers.
func (s *stripped) known() debugfile.Stripped {
	if s.BuildID == "" {
		return s.Stripped
	}
	return debugfile.Stripped{Path: path.Base(s.Path), BuildID: s.BuildID}
}

// Stripped returns the files with a remedy for each.
func (l Lacking) Stripped(finder *debugfile.Finder) profile.StrippedFiles {
	all := slices.SortedFunc(maps.Values(l), func(a, b *hurt) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.by.Path, b.by.Path), cmp.Compare(a.by.Root, b.by.Root), cmp.Compare(a.by.BuildID, b.by.BuildID))
	})
	more := len(all) - maxRemedies
	all = all[:min(len(all), maxRemedies)]
	files := make([]debugfile.Stripped, len(all))
	for i, h := range all {
		files[i] = h.by.Stripped
	}
	s := profile.StrippedFiles{Omitted: max(more, 0)}
	for i, remedy := range finder.Remedies(files) {
		by := all[i].by
		s.Files = append(s.Files, profile.Stripped{Path: by.Path, BuildID: by.BuildID, Exports: all[i].exports, Samples: all[i].samples, Remedy: remedy})
	}
	return s
}

// Problems returns why debug files of the files were not used, one line for each reason, the
// most frequent first. A server that does not answer is one reason, regardless of the number
// of files.
func (l Lacking) Problems() []string {
	files := map[string]uint64{} // by reason
	for _, h := range l {
		for _, err := range h.by.problems {
			files[plain.Error(err)]++
		}
	}
	reasons := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(cmp.Compare(files[b], files[a]), cmp.Compare(a, b))
	})
	more := len(reasons) - maxRemedies
	reasons = reasons[:min(len(reasons), maxRemedies)]
	for i, reason := range reasons {
		if n := files[reason]; n > 1 {
			reasons[i] += fmt.Sprintf(" (%d files)", n)
		}
	}
	if more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %s with debug files", plain.Count(uint64(more), "more problem")))
	}
	return reasons
}

// unnamedSamples returns, for each code, the number of samples with an unnamed frame
// in it.
func (n *Names) unnamedSamples(of iter.Seq2[stacks.Sample, stacks.Values]) map[stacks.CodeID]uint64 {
	// Stacks share their lower parts, which are visited once.
	below := make([][]stacks.CodeID, len(n.store.Nodes))
	for i, node := range n.store.Nodes[1:] {
		codes := below[node.Parent]
		if code := n.store.Frames[node.Frame].Code; !named(n.found[node.Frame]) && !slices.Contains(codes, code) {
			codes = append(slices.Clip(codes), code)
		}
		below[i+1] = codes
	}
	samples := map[stacks.CodeID]uint64{}
	for sample, value := range of {
		for _, code := range below[n.store.Traces[sample.Trace].Leaf] {
			samples[code] += value.Samples()
		}
	}
	return samples
}
