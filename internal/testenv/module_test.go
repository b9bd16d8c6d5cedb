package testenv

import (
	"errors"
	"os"
	"testing"
)

// Tests go on without a module that the kernel may contain.
func TestLoadModuleMissing(t *testing.T) {
	if err := LoadModule("fulgur-no-such-module"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, os.ErrNotExist)
	}
}
