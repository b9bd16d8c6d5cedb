package output

import (
	"io"
	"path/filepath"
	"testing"
)

// On failure, Create returns a nil interface, not one with a nil pointer.
func TestCreateFails(t *testing.T) {
	out, err := Create(filepath.Join(t.TempDir(), "missing", "out"), io.Discard)
	if err == nil || out != nil {
		t.Errorf("got output %v, error %v; want nil and an error", out, err)
	}
}
