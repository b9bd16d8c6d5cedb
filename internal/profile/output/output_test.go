package output

import (
	"io"
	"path/filepath"
	"testing"
)

// An output that cannot be is none, not one that only looks empty.
func TestCreateFails(t *testing.T) {
	out, err := Create(filepath.Join(t.TempDir(), "missing", "out"), io.Discard)
	if err == nil || out != nil {
		t.Errorf("output %v, error %v; want none and why", out, err)
	}
}
