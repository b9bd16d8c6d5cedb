package naming

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"fulgur/internal/debugfile"
	"fulgur/internal/encode/plain"
	"fulgur/internal/stacks"
)

// maxRemedies is how many files without symbols are told of one by one.
const maxRemedies = 5

// stripped is a file that lacks symbols.
type stripped struct {
	file     *debugfile.File
	problems []error // why debug files were not used
}

// Remedies tells of the files that lack symbols for code in samples, those of
// most samples first, and what to do about each.
func (n *Names) Remedies() []string {
	hurt := n.unnamedSamples()
	codes := make([]stacks.CodeID, 0, len(hurt))
	for code := range hurt {
		if n.stripped[code] != nil {
			codes = append(codes, code)
		}
	}
	slices.SortFunc(codes, func(a, b stacks.CodeID) int {
		return cmp.Or(cmp.Compare(hurt[b], hurt[a]), cmp.Compare(a, b))
	})
	more := len(codes) - maxRemedies
	codes = codes[:min(len(codes), maxRemedies)]
	files := make([]*debugfile.File, len(codes))
	for i, code := range codes {
		files[i] = n.stripped[code].file
	}
	var lines []string
	for i, remedy := range n.finder.Remedies(files) {
		lines = append(lines, n.stripped[codes[i]].describe(hurt[codes[i]], remedy))
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %s without symbols", plain.Count(uint64(more), "more file")))
	}
	return lines
}

// describe tells how many samples the file hurts and what to do about it.
func (s *stripped) describe(samples uint64, remedy string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no symbols", plain.Terminal(path.Base(s.file.Path)))
	if id := s.file.BuildID(); id != "" {
		fmt.Fprintf(&b, " (build ID %s)", id)
	}
	fmt.Fprintf(&b, ", %s", plain.Count(samples, "sample"))
	if remedy != "" {
		fmt.Fprintf(&b, "; %s", remedy)
	}
	if err := errors.Join(s.problems...); err != nil {
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
		if code := n.store.Frames[node.Frame].Code; len(n.found[node.Frame]) == 0 && !slices.Contains(codes, code) {
			codes = append(codes[:len(codes):len(codes)], code)
		}
		below[i+1] = codes
	}
	samples := map[stacks.CodeID]uint64{}
	for sample, value := range n.store.Samples {
		for _, code := range below[n.store.Bodies[sample.Body].Leaf] {
			samples[code] += value.Samples
		}
	}
	return samples
}
