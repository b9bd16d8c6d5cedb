package main

import (
	"slices"

	"github.com/alecthomas/kong"

	"fulgur/internal/branches"
	"fulgur/internal/message/plain"
	"fulgur/internal/offline"
	"fulgur/internal/profile/output"
)

// formatVars returns the formats that the help text contains.
func formatVars() kong.Vars {
	return kong.Vars{
		"formats":           plain.Or(output.Names()),
		"endings":           plain.Or(output.Endings()),
		"conversions":       plain.Or(conversionFormats()),
		"conversionEndings": plain.Or(slices.Concat(output.Endings(), branches.Endings)),
		"comparisons":       plain.Or(offline.ComparisonFormats()),
		"comparisonEndings": plain.Or(offline.ComparisonEndings()),
	}
}

// conversionFormats lists the formats that fulgur convert writes.
func conversionFormats() []string { return slices.Concat(output.Names(), branches.FormatNames) }
