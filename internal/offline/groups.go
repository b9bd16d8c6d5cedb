package offline

import (
	"errors"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// Groups says how to group the samples of a profile.
type Groups struct {
	By profile.Grouping
	// Label is the key of the label to group by, if By is [profile.GroupLabel].
	Label string
}

// apply groups p's samples, and warns of a label that none of them has. A nil Groups keeps the
// groups of the profile.
func (g *Groups) apply(p *profile.Profile, warn func(error)) {
	if g == nil {
		return
	}
	p.Meta.Grouping, p.Meta.GroupLabel = g.By, g.Label
	if hint := describe.LabelHint(p); hint != "" {
		warn(errors.New(hint))
	}
}
