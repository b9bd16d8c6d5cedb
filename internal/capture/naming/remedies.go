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

// maxRemedies is how many files without symbols are told of one by one.
const maxRemedies = 5

// maxLacking bounds how many files without symbols are remembered.
const maxLacking = 1000

// stripped is a file that lacks symbols.
type stripped struct {
	debugfile.Stripped
	problems []error // why debug files were not used
}

// Lacking are the files that lack symbols for code in samples, and how many samples
// each hurts, by what they are known as.
type Lacking map[debugfile.Stripped]*hurt

type hurt struct {
	by      *stripped
	samples uint64
}

// Add adds the files and samples of n. Where there are very many files already, those
// that are new are left out.
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
				known.by = by // its packages can be looked at
			}
		case len(l) < maxLacking:
			l[key] = &hurt{by, samples}
		}
	}
}

// known returns what a file is known as: a build is the same in whatever container it
// is.
func (s *stripped) known() debugfile.Stripped {
	if s.BuildID == "" {
		return s.Stripped
	}
	return debugfile.Stripped{Path: path.Base(s.Path), BuildID: s.BuildID}
}

// Remedies tells of the files, those of most samples first, and what to do about each.
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

// describe tells how many samples the file hurts and what to do about it.
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

// unnamedSamples returns for each code how many samples have a frame in it
// that has no name.
func (n *Names) unnamedSamples() map[stacks.CodeID]uint64 {
	// Stacks share what is below: each is looked at once.
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
