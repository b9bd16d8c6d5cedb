package encodetest

import (
	"io"
	"runtime"
	"testing"

	"fulgur/internal/profile"
)

// Linear fails the test if allocations of write grow faster than the profile with its
// inlined functions and long names. This detects quadratic copying on a machine of any
// speed.
func Linear(t *testing.T, write func(io.Writer, *profile.Profile) error) {
	t.Helper()
	cost := func(p *profile.Profile) (perFrame float64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := write(io.Discard, p); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(len(p.Stacks))
	}
	small, large := cost(Inlines(100)), cost(Inlines(1000))
	if large > 2*small {
		t.Errorf("%.0f bytes are allocated for a frame of a large profile, %.0f of a small one", large, small)
	}
}
