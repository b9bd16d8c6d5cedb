package events

import (
	"slices"
	"testing"
)

func TestTraits(t *testing.T) {
	for _, test := range []struct {
		name           string
		symbols        map[string]uint64
		otherRegisters bool
		unsafe         []uint64
	}{
		{"C", map[string]uint64{"_setjmp@@GLIBC_2.2.5": 1, "dlsym": 2, "malloc": 3, "backtrace": 4}, false, []uint64{1, 2, 4}},
		{"C++", map[string]uint64{"__gxx_personality_v0@CXXABI_1.3": 0, "_Z1fv": 1}, false, nil},
		{"Node.js", map[string]uint64{"__gxx_personality_v0": 0, "Builtins_JSEntry": 1}, true, nil},
		{"Swift", map[string]uint64{"swift_retain": 0}, true, nil},
	} {
		traits := newTraits()
		for name, at := range test.symbols {
			traits.add(name, at)
		}
		if got := traits.otherRegisters; got != test.otherRegisters {
			t.Errorf("%s: other registers: got %t, want %t", test.name, got, test.otherRegisters)
		}
		for at := range uint64(5) {
			if err := traits.checkUretprobe(at); (err != nil) != slices.Contains(test.unsafe, at) {
				t.Errorf("%s: function %d: got %v", test.name, at, err)
			}
		}
	}
}

func TestIsPart(t *testing.T) {
	traits := newTraits()
	for name, at := range map[string]uint64{"work": 1, "work.cold": 2, "work.cold.3": 3, "work.coldest": 4} {
		traits.add(name, at)
	}
	for at, want := range map[uint64]bool{1: false, 2: true, 3: true, 4: false, 5: false} {
		if got := traits.isPart(at); got != want {
			t.Errorf("%d: got %t, want %t", at, got, want)
		}
	}
}

// The parts of a function are known by their names, unless several functions have its name.
func TestPartsOf(t *testing.T) {
	traits := newTraits()
	symbols := []struct {
		name    string
		address uint64
	}{{"work", 1}, {"work.cold", 2}, {"work.cold.3", 3}, {"work.cold.cold.4", 4}, {"work", 1}, {"twice", 5}, {"twice.cold", 6}, {"twice", 7}, {"whole", 8}}
	for _, s := range symbols {
		traits.add(s.name, s.address)
	}
	for _, s := range symbols {
		traits.addWhole(s.name, s.address)
	}
	for at, want := range map[uint64][]uint64{1: {2, 3, 4}, 3: {2, 3, 4}, 5: nil, 7: nil, 8: {}} {
		got, ok := traits.partsOf(at)
		if ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%d: got %v, %t, want %v", at, got, ok, want)
		}
	}
}
