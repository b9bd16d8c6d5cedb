package session

import (
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
)

// Only text on standard output is limited.
func TestScreen(t *testing.T) {
	screen := text.Screen{Stacks: 10, Columns: 80}
	for output, want := range map[string]text.Screen{"": screen, "-": screen, "stacks.txt": {}} {
		o := Options{Output: output, Screen: screen}
		if got := o.output().Screen; got != want {
			t.Errorf("output %q: got limits %+v, want %+v", output, got, want)
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
