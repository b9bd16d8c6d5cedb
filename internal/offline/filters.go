package offline

import (
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/filter"
)

// filtered returns p with filters applied.
func filtered(p *profile.Profile, list filter.List) *profile.Profile { return list.Apply(p, flame.Key) }
