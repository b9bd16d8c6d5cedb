package text

import (
	"fmt"

	"fulgur/internal/message/plain"
)

// scale determines the display of values.
type scale struct {
	factor   float64
	unit     string
	decimals int
}

// amountsOf returns the scale for amounts in a unit of [profile.ValueType].
func amountsOf(unit string) scale {
	switch unit {
	case "nanoseconds":
		return scale{1e-6, "ms", 1}
	case "bytes":
		return scale{1.0 / 1024, "KiB", 1}
	}
	return scale{1, plain.Terminal(unit), 0}
}

// amountsFrom returns the scale for amounts from the smallest, which is not 0, to the largest.
// It keeps short times from being 0.0 ms.
func amountsFrom(unit string, smallest, largest int64) scale {
	const ms = 1_000_000
	switch {
	case unit == "nanoseconds" && largest < ms:
		return scale{1e-3, "µs", 1}
	case unit == "nanoseconds" && smallest < ms/10:
		return scale{1e-6, "ms", 3}
	}
	return amountsOf(unit)
}

func (s scale) of(n int64) float64 { return float64(n) * s.factor }

// text formats an amount with its unit, if it has one.
func (s scale) text(n int64) string {
	if s.unit == "count" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.*f %s", s.decimals, s.of(n), s.unit)
}
