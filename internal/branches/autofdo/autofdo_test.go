package autofdo

import "testing"

func TestCanonicalName(t *testing.T) {
	for name, want := range map[string]string{
		"main":                     "main",
		"_Z1fv.llvm.123":           "_Z1fv",
		"_Z1fv.part.0":             "_Z1fv",
		"_Z1fv.part.0.llvm.12":     "_Z1fv",
		"_Z1fv.__uniq.1234":        "_Z1fv.__uniq.1234", // part of the name in the source, too
		"_Z1fv.part.0.cold":        "_Z1fv.part.0.cold",
		"_Z1fv.constprop.0":        "_Z1fv.constprop.0",
		"_Z1fv.__uniq.12.llvm.123": "_Z1fv.__uniq.12",
		"runtime.mallocgc":         "runtime.mallocgc",
	} {
		if got := CanonicalName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]bool{"__cxx_global_var_init.3": true, "__tls_init": true, "init": false} {
		if got := ambiguous(name); got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
	}
}

func TestDiscriminators(t *testing.T) {
	for _, test := range []struct{ in, base, factor uint32 }{
		{0, 0, 1},
		{2 << 1, 2, 1},                    // only a base discriminator
		{31 << 1, 31, 1},                  // the largest in 5 bits
		{0x20<<1 | 1<<7 | 3<<1, 0x23, 1},  // 12 bits: 3 and 1<<5
		{1 | 4<<2, 0, 4},                  // no base, factor 4
		{5<<1 | 8<<8, 5, 8},               // both
		{1 | 1<<1, 0, 1},                  // neither, a copy may follow
		{0x20<<1 | 1<<7 | 7<<15, 0x20, 7}, // 12 bits, and a factor
		{7 | 345<<3, 345, 1},              // a pseudo-probe
	} {
		if base, factor := baseDiscriminator(test.in), duplicationFactor(test.in); base != test.base || factor != uint64(test.factor) {
			t.Errorf("%#x: got base %d, factor %d, want %d and %d", test.in, base, factor, test.base, test.factor)
		}
	}
}
