package testenv

import (
	"debug/elf"
	"testing"
)

// Symbols returns the symbols in the symbol table of an ELF file, as package debug/elf reads them.
func Symbols(t testing.TB, path string) []elf.Symbol {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	return symbols
}
