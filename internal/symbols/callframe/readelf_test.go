package callframe

import (
	"cmp"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/internal/symbols/callframe/callframetest"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

func open(t *testing.T, path string) *elffile.File {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// expected returns the bounds at addrs according to readelf's FDEs. addrs must be sorted.
func expected(fdes []callframetest.FDE, addrs []uint64) []Bounds {
	fdes = slices.Clone(fdes)
	slices.SortStableFunc(fdes, func(a, b callframetest.FDE) int { return cmp.Compare(a.Start, b.Start) })
	fdes = slices.CompactFunc(fdes, func(a, b callframetest.FDE) bool { return a.Start == b.Start })
	want := make([]Bounds, len(addrs))
	for i, addr := range addrs {
		n, found := slices.BinarySearchFunc(fdes, addr, func(f callframetest.FDE, addr uint64) int { return cmp.Compare(f.Start, addr) })
		if found {
			n++
		}
		switch {
		case n > 0 && addr < fdes[n-1].End:
			want[i].Start, want[i].End = fdes[n-1].Start, fdes[n-1].End
			continue
		case n > 0:
			want[i].Below = fdes[n-1].End
		}
		if n < len(fdes) {
			want[i].Above = fdes[n].Start
		}
	}
	return want
}

// around returns sorted addresses within and just outside the FDEs.
func around(fdes []callframetest.FDE) []uint64 {
	var addrs []uint64
	for _, f := range fdes {
		addrs = append(append(addrs, f.Start-1, f.End), f.Addresses(8)...)
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

func compare(t *testing.T, way string, addrs []uint64, got, want []Bounds) {
	t.Helper()
	if len(addrs) == 0 {
		t.Errorf("%s: got no address to compare", way)
	}
	wrong := 0
	for i, addr := range addrs {
		if got[i] != want[i] {
			if wrong++; wrong <= 5 {
				t.Errorf("%s, %#x: got %#x, want readelf's %#x", way, addr, got[i], want[i])
			}
		}
	}
	if wrong > 5 {
		t.Errorf("%s: %d of %d addresses differ", way, wrong, len(addrs))
	}
}

// TestInstalled compares the bounds of all functions with readelf's, with and without the
// search table.
func TestInstalled(t *testing.T) {
	for _, path := range callframetest.Installed(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			fdes := callframetest.FDEs(t, path)
			addrs := around(fdes)
			want := expected(fdes, addrs)
			f := open(t, path)
			if h, err := openHeader(f); err != nil || h == nil || h.entries == 0 {
				t.Fatalf("got header %+v, %v; want entries", h, err)
			}
			got, err := Find(f, addrs)
			if err != nil {
				t.Error(err)
			}
			compare(t, ".eh_frame_hdr", addrs, got, want)
			eh, err := OpenEH(f)
			if err != nil {
				t.Fatal(err)
			}
			found, err := eh.scan(addrs)
			if err != nil {
				t.Error(err)
			}
			got = make([]Bounds, len(addrs))
			for i := range got {
				got[i].add(found[i], addrs[i])
			}
			compare(t, ".eh_frame", addrs, got, want)
			t.Logf("%d FDEs, %d addresses", len(fdes), len(addrs))
		})
	}
}

// TestBuilt is like TestInstalled for programs without .eh_frame_hdr, without .eh_frame,
// and without section headers.
func TestBuilt(t *testing.T) {
	const source = "../../unwind/testdata/frames.c"
	noSections := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(b[40:], 0) // e_shoff
		clear(b[60:64])                          // e_shnum, e_shstrndx
		if err := os.WriteFile(path, b, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		flags  []string
		change func(*testing.T, string)
		debug  bool // whether there is a .debug_frame
	}{
		{name: "no .eh_frame_hdr", flags: []string{"-Wl,--no-eh-frame-hdr"}},
		{name: "no section headers", change: noSections},
		{name: "compressed .debug_frame", debug: true, flags: []string{
			"-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-Wl,--compress-debug-sections=zlib",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			cmd := exec.Command(testenv.Tool(t, "gcc"), append(test.flags, "-O2", "-o", path, source)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, out)
			}
			fdes := callframetest.FDEs(t, path)
			if debug := slices.ContainsFunc(fdes, func(f callframetest.FDE) bool { return !f.EH }); debug != test.debug {
				t.Fatalf("got a .debug_frame: %v", debug)
			}
			addrs := around(fdes)
			if test.change != nil {
				test.change(t, path)
			}
			got, err := Find(open(t, path), addrs)
			if err != nil {
				t.Error(err)
			}
			compare(t, test.name, addrs, got, expected(fdes, addrs))
		})
	}
}
