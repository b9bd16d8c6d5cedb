package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoadedBy(t *testing.T) {
	const ldd = `	linux-vdso.so.1 (0x00007ffd5f7e8000)
	libelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f2ed1e7a000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f2ed1eb4000)
`
	want := []string{"/lib/x86_64-linux-gnu/libelf.so.1", "/lib64/ld-linux-x86-64.so.2"}
	if diff := cmp.Diff(want, loadedBy(ldd)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
