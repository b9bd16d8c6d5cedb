package main

import (
	"fmt"
	"strings"
	"testing"

	"fulgur/internal/capture/target"
	"fulgur/internal/message/usage"
)

// An error that a flag helps against names it, also when wrapped.
func TestRemedy(t *testing.T) {
	for want, err := range map[string]error{
		"-L 8":     target.ThreadError{TID: 8, PID: 7},
		"-o name":  usage.OptionErrorf(usage.Output, "no file"),
		"--format": usage.OptionErrorf(usage.Format, "no format"),
		"--value":  usage.OptionErrorf(usage.Value, "no value"),
	} {
		if got := remedy(fmt.Errorf("wrapped: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: remedy %q, want %s", err, got, want)
		}
	}
	if got := remedy(usage.Errorf("something else")); got != "" {
		t.Errorf("remedy %q for an error without one", got)
	}
}
