package naming

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/message/plain"
	"fulgur/internal/symbols/debugfile"
)

// maxRemedies limits the files without symbols that are listed.
const maxRemedies = 5

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
}

// Add adds the files and samples of n. If there are already maxLacking files, it
// ignores new ones.
func (l Lacking) Add(n *Names) {
	for code, samples := range n.unnamedSamples() {
		by := n.stripped[code]
		if by == nil {
			continue
		}
		key := by.known()
		known := l[key]
		switch {
		case known != nil:
			known.samples += samples
			if by.Root == "/" {
				known.by = by // so that its packages can be searched
			}
		case len(l) < maxLacking:
			l[key] = &hurt{by, samples}
		}
	}
}

// known returns the identity of a file: a build is the same in all containers.
func (s *stripped) known() debugfile.Stripped {
	if s.BuildID == "" {
		return s.Stripped
	}
	return debugfile.Stripped{Path: path.Base(s.Path), BuildID: s.BuildID}
}

// Remedies describes the files with a remedy for each, in descending order of
// samples.
func (l Lacking) Remedies(finder *debugfile.Finder) []string {
	all := slices.SortedFunc(maps.Values(l), func(a, b *hurt) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.by.Path, b.by.Path), cmp.Compare(a.by.Root, b.by.Root), cmp.Compare(a.by.BuildID, b.by.BuildID))
	})
	more := len(all) - maxRemedies
	all = all[:min(len(all), maxRemedies)]
	files := make([]debugfile.Stripped, len(all))
	for i, h := range all {
		files[i] = h.by.Stripped
	}
	var lines []string
	for i, remedy := range finder.Remedies(files) {
		lines = append(lines, all[i].describe(remedy))
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %s without symbols", plain.Count(uint64(more), "more file")))
	}
	return lines
}

// describe returns a line with the number of affected samples and the remedy.
func (h *hurt) describe(remedy string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no symbols", plain.Terminal(path.Base(h.by.Path)))
	if h.by.BuildID != "" {
		fmt.Fprintf(&b, " (build ID %s)", h.by.BuildID)
	}
	fmt.Fprintf(&b, ", %s", plain.Count(h.samples, "sample"))
	if remedy != "" {
		fmt.Fprintf(&b, "; %s", remedy)
	}
	if err := errors.Join(h.by.problems...); err != nil {
		fmt.Fprintf(&b, " (%s)", plain.Error(err))
	}
	return b.String()
}

// unnamedSamples returns, for each code, the number of samples with an unnamed frame
// in it.
func (n *Names) unnamedSamples() map[stacks.CodeID]uint64 {
	// Stacks share their lower parts, which are visited once.
	below := make([][]stacks.CodeID, len(n.store.Nodes))
	for i, node := range n.store.Nodes[1:] {
		codes := below[node.Parent]
		if code := n.store.Frames[node.Frame].Code; !named(n.found[node.Frame]) && !slices.Contains(codes, code) {
			codes = append(codes[:len(codes):len(codes)], code)
		}
		below[i+1] = codes
	}
	samples := map[stacks.CodeID]uint64{}
	for sample, value := range n.store.Samples {
		for _, code := range below[n.store.Traces[sample.Trace].Leaf] {
			samples[code] += value.Samples()
		}
	}
	return samples
}
