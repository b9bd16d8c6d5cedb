package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/doctor"
)

// Each trial that the doctor reports has a way to try it, and the doctor reports all that are tried.
func TestTrials(t *testing.T) {
	var reported []doctor.Probe
	for _, check := range doctor.Examine(new(doctor.Facts), "").Checks {
		if check.Value == "not tried" {
			reported = append(reported, doctor.Probe(check.Title))
		}
	}
	slices.Sort(reported)
	if d := cmp.Diff(slices.Sorted(maps.Keys(trials())), reported); d != "" {
		t.Errorf("tried, but not reported (-), or reported, but not tried (+):\n%s", d)
	}
}
