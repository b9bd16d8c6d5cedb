package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
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

// FuzzNeeds reads dynamic sections with any entries. A linear search through the same entries must
// give the same answer.
func FuzzNeeds(f *testing.F) {
	entry := func(tag elf.DynTag, value uint64) []byte { return elftest.Struct([]uint64{uint64(tag), value}) }
	f.Add(slices.Concat(entry(elf.DT_NEEDED, 1), entry(elf.DT_NULL, 0), entry(elf.DT_NEEDED, 6)), []byte("\x00libm\x00libc.so.6"), "libc.")
	f.Add(slices.Concat(entry(elf.DT_NEEDED, 6), entry(elf.DT_NEEDED, 1<<40)), []byte("\x00libm\x00libc.so.6"), "libc.")
	f.Add(entry(elf.DT_NEEDED, 3)[:15], []byte("libc"), "")
	f.Fuzz(func(t *testing.T, dynamic, names []byte, prefix string) {
		const at = 0x5000
		if len(names) > maxString || len(dynamic) > maxDynamic/2 || len(names) == 0 || prefix == "" {
			return // beyond the limits
		}
		table := slices.Concat(entry(elf.DT_STRTAB, at), entry(elf.DT_STRSZ, uint64(len(names))), dynamic)
		content := elftest.File{
			Segments: []elftest.Segment{{Type: elf.PT_DYNAMIC, Section: 1}, {Type: elf.PT_LOAD, Section: 2}},
			Sections: []elftest.Section{{Name: ".dynamic", Addr: 0x4000, Content: table}, {Name: ".dynstr", Addr: at, Content: names}},
		}.Bytes()
		file, err := New(bytes.NewReader(content), int64(len(content)), "fuzz")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		want := false
		for e := range slices.Chunk(dynamic, 16) {
			if len(e) < 16 {
				break
			}
			tag, value := elf.DynTag(binary.LittleEndian.Uint64(e)), binary.LittleEndian.Uint64(e[8:])
			if tag == elf.DT_NULL {
				break
			}
			if tag == elf.DT_STRTAB || tag == elf.DT_STRSZ {
				return // a second table of names
			}
			if tag == elf.DT_NEEDED && value < uint64(len(names)) {
				name, _, _ := bytes.Cut(names[value:], []byte{0})
				want = want || strings.HasPrefix(string(name), prefix)
			}
		}
		if got, err := file.Needs(prefix); got != want || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
}
