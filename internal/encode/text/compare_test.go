package text

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"fulgur/internal/encode/encodetest"
	"fulgur/internal/profile"
)

func TestCompare(t *testing.T) {
	for golden, p := range map[string]*profile.Profile{
		"compared.txt":      encodetest.Compared(),
		"compared-same.txt": profile.Diff(encodetest.Typical(), encodetest.Typical(), true),
	} {
		var out bytes.Buffer
		if err := Compare(&out, p, 0); err != nil {
			t.Fatal(err)
		}
		encodetest.Golden(t, golden, out.Bytes())
	}
	if err := Compare(io.Discard, encodetest.Typical().Only(0), 0); err == nil {
		t.Error("no error for a profile with one value")
	}
	if err := Compare(encodetest.FullDisk{}, encodetest.Compared(), 0); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("error %v, want one that wraps the writer's", err)
	}
}
