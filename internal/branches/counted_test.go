package branches

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Code counts as the file's only if it is the same in all processes.
func TestCompare(t *testing.T) {
	testenv.AnyKernel(t)
	code := []byte("code")
	at := func(memory []byte) place {
		return place{os.Getpid(), uint64(uintptr(unsafe.Pointer(&memory[0])))}
	}
	// The end of a mapping of a file, as the end of the code of a binary is.
	path := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(path, []byte("cold"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(code), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	same, changed, other, unmapped := at([]byte("code")), at(mapped), at([]byte("cold")), place{os.Getpid(), 16}
	for name, test := range map[string]struct {
		places      []place
		same, known bool
	}{
		"same":                     {[]place{same, same}, true, true},
		"the last is changed":      {[]place{same, changed}, false, true},
		"one has exited":           {[]place{unmapped, same}, true, true},
		"one runs another program": {[]place{other, same}, true, true},
		"all have exited":          {[]place{unmapped}, false, false},
		"none":                     {nil, false, false},
	} {
		c := &counted{places: test.places, inode: st.Ino}
		if same, known := c.compare(0, code); same != test.same || known != test.known {
			t.Errorf("%s: got %t, known %t, want %t, %t", name, same, known, test.same, test.known)
		}
	}
}

// Samples at more addresses than fulgur remembers are counted as lost.
func TestMaxSampled(t *testing.T) {
	c := &counted{samples: map[uint64]uint64{}}
	const beyond = 5
	for addr := range uint64(maxSampled + beyond) {
		if isNew := c.sampled(addr, 2); isNew != (addr < maxSampled) {
			t.Fatalf("address %d: got new %t", addr, isNew)
		}
	}
	if c.sampled(0, 2) || c.samples[0] != 4 || len(c.samples) != maxSampled || c.crowded != 2*beyond {
		t.Errorf("got %d samples at the first of %d addresses and %d beyond the limit, want 4, %d and %d",
			c.samples[0], len(c.samples), c.crowded, maxSampled, 2*beyond)
	}
}
