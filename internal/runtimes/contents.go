package runtimes

import "fulgur/internal/symbols/elffile"

// Contents returns n bytes at a link-time address of a file.
func Contents(f *elffile.File, addr, n uint64) ([]byte, error) {
	at, ok := f.Offset(addr)
	if !ok {
		return nil, f.Errorf(0, "no contents at address %#x", addr)
	}
	return f.Bytes(int64(at), n, "the runtime's structure")
}
