package elffile

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// The entries of dynamic sections and the needed libraries are the same as in the standard library.
func TestNeeds(t *testing.T) {
	needs := 0
	for _, path := range []string{testenv.Library("libc.so.6"), testenv.Library("libm.so.6"), "/proc/self/exe"} {
		t.Run(path, func(t *testing.T) { needs += checkNeeds(t, path) })
	}
	if needs == 0 {
		t.Error("got no file that needs a library")
	}
}

// checkNeeds returns the number of prefixes for which the file needs a library.
func checkNeeds(t *testing.T, path string) (needs int) {
	t.Helper()
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
	entries, err := f.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	byTag := map[elf.DynTag][]uint64{}
	for _, e := range entries {
		byTag[e.Tag] = append(byTag[e.Tag], e.Value)
	}
	for tag, got := range byTag {
		if want, err := other.DynValue(tag); err != nil || !slices.Equal(got, want) {
			t.Errorf("got entries %s %#x, want %#x (%v)", tag, got, want, err)
		}
	}
	libraries, err := other.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"libc.", "ld-linux", "libnone"} {
		want := slices.ContainsFunc(libraries, func(l string) bool { return strings.HasPrefix(l, prefix) })
		if got, err := f.Needs(prefix); got != want || err != nil {
			t.Errorf("needs %s: got %v, %v, want %v", prefix, got, err, want)
		}
		if want {
			needs++
		}
	}
	return needs
}
