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
	j := joint{failing{nil, nil}, failing{nil, errors.New("no tracefs")}, failing{nil, errors.New("no tracefs, again")}}
	if err := j.Choose(); err == nil || err.Error() != "no tracefs" {
		t.Errorf("got error %v, want the first alone", err)
	}
}
