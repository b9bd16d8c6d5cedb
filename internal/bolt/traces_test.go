package bolt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bolt"
)

func TestTraces(t *testing.T) {
	const lines = "E cycles:u\nT 10 20 30 4\nT 11 21 ffffffffffffffff 5 1\nR 12 22 32 6\nB 10 20 0 2\nB 0 20 7 0\nF 40 48 8\nf 50 58 9\nr 60 68 3\n"
	want := []bolt.Trace{
		{From: 0x10, To: 0x20, End: 0x30, Count: 4},
		{From: 0x11, To: 0x21, Count: 5, Mispredicted: 1},
		{From: 0x12, To: 0x22, End: 0x32, Count: 6},
		{To: 0x20, Count: 7},
		{From: bolt.NoBranch, To: 0x40, End: 0x48, Count: 8},
		{From: bolt.NoBranch, To: 0x50, End: 0x58, Count: 9},
		{From: bolt.NoBranch, To: 0x60, End: 0x68, Count: 3},
	}
	var got []bolt.Trace
	for trace, err := range bolt.NewReader(strings.NewReader(lines), "in").Traces() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, trace)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for name, lines := range map[string]string{"samples": "S 10 3\n", "cut short": "T 10 20"} {
		var err error
		for _, err = range bolt.NewReader(strings.NewReader(lines), "in").Traces() {
		}
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
