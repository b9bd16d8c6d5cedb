package symbolize

import (
	"context"
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

// After an interrupt, names keep the form that the linker knows.
func TestNameFramesCanceled(t *testing.T) {
	const linkage = "_ZN1a1bEv"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, want := range []string{"a::b", linkage} {
		frames := [][]Frame{{{SystemName: linkage}}, {{SystemName: "_\xff"}}}
		nameFrames(ctx, frames, Options{})
		if got := frames[0][0]; got.Name != want || got.SystemName != linkage {
			t.Errorf("got %q of %q, want %q", got.Name, got.SystemName, want)
		}
		if got := frames[1][0].Name; got != "_\uFFFD" {
			t.Errorf("got %q, want valid UTF-8", got)
		}
		cancel()
	}
}
