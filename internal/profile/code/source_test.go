package code

import (
	"errors"
	"testing"
)

// The error for a source file that is not on this machine says so.
func TestNoSource(t *testing.T) {
	const name = "/rustc/0123456789abcdef/library/core/src/slice/mod.rs"
	_, err := readSource(name)
	if !errors.Is(err, ErrNoSource) || err.Error() != name+": this source file is not installed" {
		t.Errorf("got error %v, want that %s is not installed", err, name)
	}
}
