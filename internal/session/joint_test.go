package session

import (
	"errors"
	"testing"

	"fulgur/internal/capture/source"
)

type failing struct {
	source.Subject
	err error
}

func (f failing) Choose() error { return f.err }

// A lack of several subjects is reported once.
func TestJointChoose(t *testing.T) {
	lack := errors.New("no tracefs")
	j := joint{failing{nil, nil}, failing{nil, lack}, failing{nil, errors.New("no tracefs, again")}}
	if err := j.Choose(); err != lack {
		t.Errorf("got error %q, want %q alone", err, lack)
	}
}
