package session

import (
	"testing"

	"fulgur/internal/profile"
)

// Only text on standard output is limited to the largest stacks.
func TestLargest(t *testing.T) {
	for output, want := range map[string]int{"": 10, "-": 10, "stacks.txt": 0} {
		o := Options{Output: output, Largest: 10}
		if got := o.output().Largest; got != want {
			t.Errorf("output %q: got at most %d stacks, want %d", output, got, want)
		}
	}
}

// Labels are read for formats that have them, for groups, and on request. Samples with times
// have no groups by label.
func TestWantsLabels(t *testing.T) {
	for _, test := range []struct {
		options       Options
		labels, times bool
	}{
		{Options{Output: "a.pb.gz"}, true, false},
		{Options{Output: "a.folded"}, false, false},
		{Options{Output: "a.folded", Labels: true}, true, false},
		{Options{Output: "a.folded", By: profile.GroupLabel, ByLabel: "kind"}, true, false},
		{Options{Output: "a.folded", By: profile.GroupContainer}, false, false},
		{Options{Output: "a.html", Times: true}, false, true},
		{Options{Output: "a.html", Times: true, By: profile.GroupLabel, ByLabel: "kind"}, true, false},
	} {
		o := test.options
		if labels, times := o.wantsLabels(), o.hasTimes(); labels != test.labels || times != test.times {
			t.Errorf("%q by %s: got labels %t and times %t, want %t and %t", o.Output, o.By, labels, times, test.labels, test.times)
		}
		if o.By == profile.GroupLabel && o.wantsOwners() {
			t.Errorf("%q: groups by label look for containers", o.Output)
		}
	}
}
