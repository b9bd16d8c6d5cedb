package describe

import (
	"maps"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// shownKeys limits the keys of labels in a hint.
const shownKeys = 8

// LabelHint lists the keys of labels if p is grouped by a label that no sample has. Otherwise it is
// empty.
func LabelHint(p *profile.Profile) string {
	if p.Meta.Grouping != profile.GroupLabel || len(p.Samples) == 0 {
		return ""
	}
	keys := map[string]bool{}
	for _, s := range p.Samples {
		for _, l := range p.LabelsOf(s.Task) {
			keys[l.Key] = true
		}
	}
	hint := "no sample has the label " + plain.Terminal(p.Meta.GroupLabel)
	switch seen := slices.Sorted(maps.Keys(keys)); {
	case keys[p.Meta.GroupLabel]:
		return ""
	case len(seen) == 0:
		return hint + ", or any other"
	default:
		return hint + "; some have " + plain.Terminal(strings.Join(seen[:min(len(seen), shownKeys)], ", "))
	}
}
