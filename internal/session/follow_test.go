package session

import (
	"testing"

	"fulgur/internal/capture/source"
)

// ending is a source that may end the measurement.
type ending struct {
	source.Source
	enough bool
}

func (ending) FollowsFiles() bool { return false }
func (e ending) Enough() bool     { return e.enough }

// One of several sources ends the measurement.
func TestIntroduceEnough(t *testing.T) {
	for _, want := range []bool{false, true} {
		r := &run{sources: []source.Source{ending{}, ending{enough: want}}, options: new(Options)}
		if err := r.introduce(); err != nil {
			t.Fatal(err)
		}
		if got := r.Enough(); got != want {
			t.Errorf("got %t, want %t", got, want)
		}
	}
}
