package symbolize

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/symbols/callframe/callframetest"
	"fulgur/internal/symbols/elffile"
)

// TestWholeFunctions looks up addresses throughout the functions of stripped files. A
// function has the same name at all its addresses. Without a symbol, it is named after
// the start of readelf's FDE.
func TestWholeFunctions(t *testing.T) {
	for _, path := range callframetest.Installed(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			e := openFile(t, path, Options{NoDemangle: true})
			sections, err := e.File().Sections()
			if err != nil {
				t.Fatal(err)
			}
			var fdes []callframetest.FDE
			for _, f := range callframetest.FDEs(t, path) {
				inPLT := slices.ContainsFunc(sections, func(s *elffile.Section) bool { return s.IsPLT() && s.Holds(f.Start) })
				if f.EH && !inPLT { // one FDE covers all stubs
					fdes = append(fdes, f)
				}
			}
			slices.SortFunc(fdes, func(a, b callframetest.FDE) int { return int(int64(a.Start - b.Start)) })
			var addrs []uint64
			for _, f := range fdes {
				addrs = append(addrs, f.Addresses(8)...)
			}
			if !slices.IsSorted(addrs) {
				t.Fatal("FDEs overlap")
			}
			found, err := e.LookupBatch(addrs)
			if err != nil {
				t.Error(err)
			}
			pieces, unnamed := 0, 0
			for _, f := range fdes {
				n := len(f.Addresses(8))
				names := make([]string, n)
				for i, frames := range found[:n] {
					if len(frames) != 1 || addrs[i]-frames[0].Offset != f.Start && frames[0].NoSymbol {
						t.Fatalf("%#x: got %+v, want the function at readelf's start", addrs[i], frames)
					}
					names[i] = frames[0].Name
				}
				if found[0][0].NoSymbol {
					unnamed++
					if want := fmt.Sprintf("%s+%#x", filepath.Base(path), f.Start); names[0] != want {
						t.Errorf("%#x: got %q, want %q", f.Start, names[0], want)
					}
				}
				found, addrs = found[n:], addrs[n:]
				if names = slices.Compact(names); len(names) > 1 {
					if pieces++; pieces <= 10 {
						t.Errorf("%#x to %#x: got several names, want one: %s", f.Start, f.End, strings.Join(names, ", "))
					}
				}
			}
			t.Logf("%d FDEs, %d without a symbol, %d in pieces", len(fdes), unnamed, pieces)
		})
	}
}
