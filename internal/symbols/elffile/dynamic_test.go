package elffile

import (
	"debug/elf"
	"testing"

	"fulgur/internal/testenv"
)

// The exported symbols of a library, and no others, are found at the same addresses as by the
// standard library.
func TestDynamicSymbol(t *testing.T) {
	path := testenv.Library("libc.so.6")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	symbols, err := other.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]map[uint64]bool{} // versions of a symbol share a name
	for _, s := range symbols {
		if values[s.Name] == nil {
			values[s.Name] = map[uint64]bool{}
		}
		if s.Section != elf.SHN_UNDEF {
			values[s.Name][s.Value] = true
		}
	}
	found := 0
	for name, at := range values {
		s, index, err := f.DynamicSymbolIndex(name)
		ok := index != 0
		if ok && symbols[index-1].Name != name { // the package leaves out symbol 0
			t.Errorf("%s: got index %d of %s", name, index, symbols[index-1].Name)
		}
		if err != nil || ok != (len(at) > 0) || ok && !at[s.Value] {
			t.Errorf("%s: got %+v, %v, %v, want one of %v", name, s, ok, err, at)
		}
		if ok {
			found++
		}
		if _, ok, err := f.DynamicSymbol(name + "_"); ok && values[name+"_"] == nil || err != nil {
			t.Errorf("%s_: got a symbol, %v", name, err)
		}
	}
	if found < 1000 {
		t.Errorf("got only %d symbols", found)
	}
}
