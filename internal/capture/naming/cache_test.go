package naming

import (
	"context"
	"errors"
	"slices"
	"testing"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// What an earlier window named is not looked for again, and what could not be read
// is.
func TestSymbolCache(t *testing.T) {
	first := stackstest.Own(t)
	next := func() *stacks.Store {
		s := stacks.NewStore(nil)
		s.Adopt(first, 0)
		return s
	}
	k := NewSymbolCache()
	t.Cleanup(func() {
		if err := errors.Join(k.Close(), k.Close()); err != nil {
			t.Error(err)
		}
	})
	ended, end := context.WithCancel(t.Context())
	end()
	// name returns how many frames of code have names after they were looked for.
	name := func(ctx context.Context, s *stacks.Store) (named int) {
		n := New(s, debugfiletest.NewFinder(t), symbolize.Options{})
		n.Cache = k
		n.Symbolize(ctx)
		for i, f := range s.Frames {
			if len(n.found[i]) > 0 && s.Codes[f.Code].Kind == stacks.CodeFile {
				named++
				if n.shown[i].address == 0 || n.buildIDs[f.Code] == "" && n.bases[f.Code] == 0 {
					t.Errorf("frame %d of %s has a name, and neither place nor file", i, s.Codes[f.Code].File.Path)
				}
			}
		}
		return named
	}
	if got := name(ended, next()); got != 0 {
		t.Fatalf("%d frames have names, though nothing could be read", got)
	}
	want := name(t.Context(), first)
	if want == 0 {
		t.Fatal("no frame has a name")
	}
	if len(k.tables) != 1 {
		t.Errorf("%d tables are open, want the one of this program", len(k.tables))
	}
	if got := name(ended, next()); got != want {
		t.Errorf("%d frames are known, want %d", got, want)
	}
	// Entries that were used again survive a change of generations.
	k.young, k.old = map[knownFrame]knownNames{}, k.young
	if got := name(ended, next()); got != want || len(k.young) == 0 {
		t.Errorf("%d frames are known, want %d; %d are young", got, want, len(k.young))
	}
	k.young, k.old = map[knownFrame]knownNames{}, map[knownFrame]knownNames{}
	if got := name(ended, next()); got != 0 {
		t.Errorf("%d frames are known, though all was forgotten", got)
	}
}

// Of many open tables those stay open that were used last.
func TestTrim(t *testing.T) {
	k := NewSymbolCache()
	var files []*process.File
	for range maxTables + 5 {
		file := &process.File{}
		files = append(files, file)
		elf, err := symbolize.OpenVDSO(symbolize.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.keep(file, elf, &stripped{}); err != nil {
			t.Fatal(err)
		}
		k.round++
	}
	if elf, lacks := k.table(files[0]); elf == nil || lacks == nil {
		t.Fatal("a table that was kept is not there")
	}
	if err := k.Trim(); err != nil {
		t.Fatal(err)
	}
	var left []int
	for i, f := range files {
		if k.tables[f] != nil {
			left = append(left, i)
		}
	}
	want := []int{0}
	for i := 6; i < len(files); i++ {
		want = append(want, i)
	}
	if !slices.Equal(left, want) {
		t.Errorf("open are %v, want %v", left, want)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}
