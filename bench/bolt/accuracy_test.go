package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestAccuracy(t *testing.T) {
	read := func(text string) outcomes {
		path := filepath.Join(t.TempDir(), "profile")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		o, err := readOutcomes(path)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	all := read("1 f 10 1 f 20 0 60\n1 f 10 1 f 12 0 20\n1 f 30 1 f 40 0 20\n1 f 50 1 g 0 0 1000\n")
	got := read("1 f 10 1 f 20 0 2\n1 f 10 1 f 12 3 1\n1 f 10 1 f 99 0 1\n").compare(all)
	// Of 100 branches within the function, 20 are not seen. The others lead to 20, 12 and 99 with
	// shares of 0.75, 0.25 and 0 instead of 0.5, 0.25 and 0.25.
	if math.Abs(got.unseen-0.2) > 1e-9 || math.Abs(got.wrong-0.25) > 1e-9 {
		t.Errorf("got %+v, want 0.2 and 0.25", got)
	}
	if got := all.compare(all); got != (accuracy{}) {
		t.Errorf("compared with itself: got %+v", got)
	}
	if o := read("no_lbr samples\n1 f 0 106\n"); len(o) > 0 {
		t.Errorf("samples: got %+v", o)
	}
}
