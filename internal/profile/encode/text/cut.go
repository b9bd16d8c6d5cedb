package text

import (
	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
)

// cut returns s made plain and shortened to width characters; the name of a function keeps
// its end.
func cut(s string, width int) string { return shortname.Fit(plain.Terminal(s), width) }
