// Package debugfiletest finds debug files for tests.
package debugfiletest

import (
	"testing"

	"fulgur/internal/symbols/debugfile"
)

// NewFinder returns a finder for the debug files of this machine. It does not download.
func NewFinder(t testing.TB) *debugfile.Finder {
	t.Helper()
	f, err := debugfile.New(debugfile.Config{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
