package symbolize

import (
	"strings"
	"testing"
)

// Demangling the whole of this name would take a second, and of one of a megabyte, minutes.
func TestLongName(t *testing.T) {
	long := "_ZN" + strings.Repeat("1aUlvE_", 10_000) + "E"
	if got := NewFrame([]byte(long), 0, Options{}); len(got.SystemName) != maxName || len(got.Name) > maxName {
		t.Errorf("got names of %d and %d bytes, want at most %d", len(got.Name), len(got.SystemName), maxName)
	}
}
