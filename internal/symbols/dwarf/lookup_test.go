package dwarf

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPaint(t *testing.T) {
	for name, test := range map[string]struct {
		spans []span
		want  segments
	}{
		"none":     {},
		"one":      {[]span{{10, 20, 0}}, segments{[]uint64{10, 20}, []int32{0, -1}}},
		"gap":      {[]span{{30, 40, 1}, {10, 20, 0}}, segments{[]uint64{10, 20, 30, 40}, []int32{0, -1, 1, -1}}},
		"adjacent": {[]span{{10, 20, 0}, {20, 30, 0}}, segments{[]uint64{10, 30}, []int32{0, -1}}},
		"nested": {
			[]span{{10, 50, 0}, {20, 40, 1}, {30, 35, 2}},
			segments{[]uint64{10, 20, 30, 35, 40, 50}, []int32{0, 1, 2, 1, 0, -1}},
		},
		"same": {[]span{{10, 20, 1}, {10, 20, 0}}, segments{[]uint64{10, 20}, []int32{1, -1}}},
		"overlap": {
			[]span{{10, 30, 1}, {20, 40, 0}},
			segments{[]uint64{10, 30, 40}, []int32{1, 0, -1}},
		},
	} {
		got := paint(test.spans)
		if !slices.Equal(got.lo, test.want.lo) || !slices.Equal(got.id, test.want.id) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// TestDescending looks up an address and then the one before it, and expects the results of a
// batch.
func TestDescending(t *testing.T) {
	for _, name := range []string{"gcc4", "gcc5", "clang4", "clang5"} {
		s := seedSections(t, name)
		batch, err := Open(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		addrs := codeAddresses(batch)
		want, err := batch.LookupBatch(addrs)
		if err != nil {
			t.Fatal(err)
		}
		// Each pair needs a new file, because the second lookup in a function reads all
		// of it.
		for i := 1; i < len(addrs); i++ {
			d, err := Open(s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []int{i, i - 1} {
				got, err := d.LookupBatch(addrs[at : at+1])
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want[at], got[0]); diff != "" {
					t.Errorf("%s: %#x: (-want +got):\n%s", name, addrs[at], diff)
				}
			}
		}
	}
}

// seedSections returns the sections of leaf.c, from TestSeeds.
func seedSections(t *testing.T, name string) *Sections {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".sections")
	if err != nil {
		t.Fatal(err)
	}
	return unpackSections(b)
}

// codeAddresses returns all addresses in an index.
func codeAddresses(d *Data) []uint64 {
	var addrs []uint64
	for i := range d.index.lo[:len(d.index.lo)-1] {
		for a := d.index.lo[i]; a < d.index.lo[i+1]; a++ {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// TestOrder checks that the results do not depend on the order of addresses, the number of
// goroutines and the memory limit.
func TestOrder(t *testing.T) {
	for _, name := range []string{"gcc4", "gcc5", "clang4", "clang5"} {
		s := seedSections(t, name)
		d, err := Open(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		addrs := codeAddresses(d)
		want, err := d.LookupBatch(addrs)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 || len(want[0]) == 0 || want[0][0].Function == nil {
			t.Fatalf("%s: got no function at %#x", name, addrs[0])
		}
		d, err = Open(s, Options{Budget: 1})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for seed := range int64(8) {
			wg.Go(func() {
				order := rand.New(rand.NewSource(seed)).Perm(2 * len(addrs))
				for len(order) > 0 {
					n := min(len(order), 50)
					var batch []uint64
					for _, i := range order[:n] {
						batch = append(batch, addrs[i%len(addrs)])
					}
					got, err := d.LookupBatch(batch)
					if err != nil {
						t.Error(err)
					}
					for j, i := range order[:n] {
						if diff := cmp.Diff(want[i%len(addrs)], got[j]); diff != "" {
							t.Errorf("%s: %#x: (-want +got):\n%s", name, batch[j], diff)
							return
						}
					}
					order = order[n:]
				}
			})
		}
		wg.Wait()
	}
}

// TestMalformed expects an error with the position, and results from the other sections.
func TestMalformed(t *testing.T) {
	s := seedSections(t, "gcc5")
	lines := content(s.Line)
	s.Line = bytes.NewReader(lines[:len(lines)-1])
	d, err := Open(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	addrs := codeAddresses(d)
	got, err := d.LookupBatch(addrs)
	var format *FormatError
	if !errors.As(err, &format) || format.File != "fuzz" || format.Section != ".debug_line" {
		t.Errorf("got error %v, want one about .debug_line", err)
	}
	if len(got[0]) == 0 || got[0][0].Function == nil || got[0][0].Line != 0 {
		t.Errorf("got %+v, want the function without a line", got[0])
	}

	s = seedSections(t, "gcc5")
	info := content(s.Info)
	s.Info = bytes.NewReader(info[:len(info)-1])
	if _, err := Open(s, Options{}); !errors.As(err, &format) || format.Section != ".debug_info" {
		t.Errorf("got error %v, want one about .debug_info", err)
	}
}
