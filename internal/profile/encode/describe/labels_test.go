package describe

import (
	"testing"

	"fulgur/internal/profile"
)

// A label that no sample has is reported, with the labels that some have.
func TestLabelHint(t *testing.T) {
	labelled := func(key string, sets ...profile.Labels) *profile.Profile {
		p := &profile.Profile{Labels: append([]profile.Labels{nil}, sets...)}
		p.Meta.Grouping, p.Meta.GroupLabel = profile.GroupLabel, key
		for i := range p.Labels {
			p.Tasks = append(p.Tasks, profile.Task{Labels: profile.LabelsID(i)})
			p.Samples = append(p.Samples, profile.Sample{Task: profile.TaskID(i)})
		}
		return p
	}
	set := profile.Labels{{Key: "endpoint", Value: "cart"}, {Key: "us\x1ber", Value: "1"}}
	for _, test := range []struct {
		p    *profile.Profile
		want string
	}{
		{labelled("endpoint", set), ""},
		{labelled("endpiont", set), "no sample has the label endpiont; some have endpoint, us\\x1ber"},
		{labelled("endpoint"), "no sample has the label endpoint, or any other"},
		{&profile.Profile{Samples: []profile.Sample{{}}}, ""},
	} {
		if got := LabelHint(test.p); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
