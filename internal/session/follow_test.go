package session

import (
	"testing"

	"fulgur/internal/capture/source"
)

// ending is a source that may end the measurement.
type ending struct {
	source.Source
	why string
}

func (e ending) Enough() string { return e.why }

// One of several sources ends the measurement.
func TestEnough(t *testing.T) {
	for _, want := range []string{"", "too slow"} {
		r := &run{sources: []source.Source{ending{}, ending{why: want}}, options: new(Options)}
		if got := r.whyStopped(); got != want || r.enough() != (want != "") {
			t.Errorf("got %q and %t, want %q", got, r.enough(), want)
		}
	}
}
