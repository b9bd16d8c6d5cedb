package describe

import (
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// Negative says which of the given values of p have negative amounts, which no graph can draw. It
// returns "" if none has.
func Negative(p *profile.Profile, values ...int) string {
	var names []string
	for _, v := range values {
		if p.HasNegative(v) {
			names = append(names, plain.Terminal(p.ValueTypes[v].Type))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "negative amounts of " + strings.Join(names, ", ")
}

// NegativeEffect says what formats do that have no place for negative amounts.
const NegativeEffect = "not drawn; what is drawn is larger than the total"
