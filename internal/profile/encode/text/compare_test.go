package text

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

func TestCompare(t *testing.T) {
	times := profile.Diff(encodetest.Typical().Only(1), encodetest.Symbols().Only(1), false)
	for golden, c := range map[string]struct {
		p *profile.Profile
		o CompareOptions
	}{
		"compared.txt":        {encodetest.Compared(), CompareOptions{Value: "samples"}},
		"compared-60.txt":     {encodetest.Compared(), CompareOptions{Columns: 60, Value: "syscalls:sys_enter_newfstatat"}},
		"compared-100.txt":    {encodetest.Compared(), CompareOptions{Columns: 100}},
		"compared-shares.txt": {encodetest.Compared(), CompareOptions{Shares: true, Value: "samples"}},
		"compared-times.txt":  {times, CompareOptions{Functions: 5}},
		"compared-same.txt":   {profile.Diff(encodetest.Typical(), encodetest.Typical(), true), CompareOptions{}},
		"compared-empty.txt":  {profile.Diff(encodetest.Empty(), encodetest.Empty(), true), CompareOptions{Shares: true}},
	} {
		var out bytes.Buffer
		if err := Compare(&out, c.p, c.o); err != nil {
			t.Fatal(err)
		}
		encodetest.Golden(t, golden, out.Bytes())
	}
	if err := Compare(io.Discard, encodetest.Typical().Only(0), CompareOptions{}); err == nil {
		t.Error("got no error for a profile with one value")
	}
	if err := Compare(encodetest.FullDisk{}, encodetest.Compared(), CompareOptions{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

// Names of values and units are untrusted, too.
func TestCompareHostile(t *testing.T) {
	for _, name := range encodetest.HostileNames {
		for _, unit := range []string{"count", name} {
			p := encodetest.Hostile().Only(0)
			p.ValueTypes = []profile.ValueType{{Type: name, Unit: unit}}
			var out bytes.Buffer
			if err := Compare(&out, profile.Diff(p, p.Only(0), true), CompareOptions{Value: name}); err != nil {
				t.Fatal(err)
			}
			checkPrintable(t, out.String())
		}
	}
}
