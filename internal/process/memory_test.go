package process

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
)

func TestMemory(t *testing.T) {
	m := NewMemory(os.Getpid(), safeopen.NewBudget())
	page, err := unix.Mmap(-1, 0, 2*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	copy(page, "text")
	at := uint64(uintptr(unsafe.Pointer(&page[0])))
	got := make([]byte, 4)
	if err := m.Read(got, at); err != nil || string(got) != "text" {
		t.Errorf("read %q: %v", got, err)
	}
	if err := m.Read(nil, 0); err != nil {
		t.Errorf("read nothing: %v", err)
	}
	if err := unix.Mprotect(page[os.Getpagesize():], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{0, at + uint64(os.Getpagesize()) - 2} {
		if err := m.Read(got, at); err == nil || string(got) != "text" {
			t.Errorf("read of memory that cannot be read, at %#x: %q, %v", at, got, err)
		}
	}
}
