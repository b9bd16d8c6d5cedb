package procfs

import (
	"bytes"
	"debug/elf"
	"testing"
)

func TestVDSO(t *testing.T) {
	image, err := VDSO()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	if symbols, err := f.DynamicSymbols(); err != nil || len(symbols) == 0 {
		t.Errorf("got symbols %v, %v; want some", symbols, err)
	}
}
