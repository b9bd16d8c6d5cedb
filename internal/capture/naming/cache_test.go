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

// The cache keeps names from earlier windows. Code that could not be read is tried again.
func TestSymbolCache(t *testing.T) {
	first := stackstest.Own(t)
	next := func() *stacks.Store {
		s := stacks.NewStore(nil)
		s.CopyTrace(first, 0)
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
	// name looks up the names of a store's code and returns how many frames then have
	// names.
	name := func(ctx context.Context, s *stacks.Store) (named int) {
		n := New(s, debugfiletest.NewFinder(t), symbolize.Options{})
		n.Cache = k
		n.Symbolize(ctx)
		for i, f := range s.Frames {
			if len(n.found[i]) > 0 && s.Codes[f.Code].Kind == stacks.CodeFile {
				named++
				if n.shown[i].address == 0 || n.files[f.Code] == nil {
					t.Errorf("frame %d of %s has a name, but neither an address in a file nor a file", i, s.Codes[f.Code].File.Path)
				}
			}
		}
		return named
	}
	if got := name(ended, next()); got != 0 {
		t.Fatalf("got %d frames with names from unreadable files, want 0", got)
	}
	want := name(t.Context(), first)
	if want == 0 {
		t.Fatal("got no frame with a name")
	}
	if len(k.tables) != 1 {
		t.Errorf("got %d open tables, want only this program's", len(k.tables))
	}
	if got := name(ended, next()); got != want {
		t.Errorf("got %d cached frames, want %d", got, want)
	}
	// Entries used since the last change of generations survive the next one.
	k.young, k.old = map[knownFrame]knownNames{}, k.young
	if got := name(ended, next()); got != want || len(k.young) == 0 {
		t.Errorf("got %d cached frames, want %d; %d are in the young generation", got, want, len(k.young))
	}
	k.young, k.old = map[knownFrame]knownNames{}, map[knownFrame]knownNames{}
	if got := name(ended, next()); got != 0 {
		t.Errorf("got %d cached frames after the cache was emptied, want 0", got)
	}
}

// Names found during sampling are used afterwards. Files that were not begun before sampling ended
// are looked up then. After an interrupt, names that were found earlier are kept.
func TestSymbolCacheAhead(t *testing.T) {
	store := stackstest.Own(t)
	going, over := make(chan struct{}), make(chan struct{})
	close(over)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ahead       chan struct{}
		before, ctx context.Context
		want        bool // names
		canceled    bool
	}{
		"named ahead":                 {ahead: going, before: t.Context(), ctx: ended, want: true},
		"not begun":                   {ahead: over, before: t.Context(), ctx: t.Context(), want: true},
		"not begun, interrupted":      {ahead: over, before: t.Context(), ctx: ended, canceled: true},
		"interrupted ahead":           {ahead: going, before: ended, ctx: ended, canceled: true},
		"interrupted, not afterwards": {ahead: going, before: ended, ctx: t.Context(), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := NewSymbolCache()
			t.Cleanup(func() {
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			})
			n := New(store.Lasting(0), debugfiletest.NewFinder(t), symbolize.Options{})
			n.Cache, n.Ahead = k, test.ahead
			n.Symbolize(test.before)
			k.Last()
			n = New(store, debugfiletest.NewFinder(t), symbolize.Options{})
			n.Cache = k
			n.Symbolize(test.ctx)
			for i, f := range store.Frames {
				if store.Codes[f.Code].Kind != stacks.CodeFile {
					continue
				}
				if got := len(n.found[i]) > 0; got != test.want {
					t.Errorf("frame %d of %s has names: %v, want %v", i, store.Codes[f.Code].File.Path, got, test.want)
				}
				if got := errors.Is(n.problems[f.Code], context.Canceled); got != test.canceled {
					t.Errorf("got problem %v, want an interrupt: %v", n.problems[f.Code], test.canceled)
				}
			}
		})
	}
}

// Frames that an interrupt leaves without names have their addresses in the file, whether or not
// other frames of the file were named before.
func TestInterruptedPlaces(t *testing.T) {
	store := stackstest.Own(t)
	ended, end := context.WithCancel(t.Context())
	end()
	named := New(store, debugfiletest.NewFinder(t), symbolize.Options{})
	named.Symbolize(t.Context())
	for _, first := range []int{0, 1, len(store.Frames)} {
		k := NewSymbolCache()
		n := New(store.Lasting(first), debugfiletest.NewFinder(t), symbolize.Options{})
		n.Cache = k
		n.Symbolize(t.Context())
		n = New(store, debugfiletest.NewFinder(t), symbolize.Options{})
		n.Cache = k
		n.Symbolize(ended)
		for i, f := range store.Frames {
			if store.Codes[f.Code].Kind == stacks.CodeFile && n.shown[i] != named.shown[i] {
				t.Errorf("%d frames not named before: frame %d is %+v, want %+v", first, i, n.shown[i], named.shown[i])
			}
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Frames that are not looked up keep names that are known, and the others get theirs as soon as
// they are looked up.
func TestSymbolCacheLater(t *testing.T) {
	store := stackstest.Own(t)
	k := NewSymbolCache()
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	name := func(later bool) (named, placed int) {
		n := New(store, debugfiletest.NewFinder(t), symbolize.Options{})
		n.Cache, n.Later = k, later
		n.Symbolize(t.Context())
		for i, f := range store.Frames {
			if store.Codes[f.Code].Kind != stacks.CodeFile {
				continue
			}
			if len(n.found[i]) > 0 {
				named++
			}
			if n.shown[i].address != 0 {
				placed++
			}
		}
		return named, placed
	}
	for range 2 { // the second time from the cache
		if named, placed := name(true); named != 0 || placed == 0 || len(k.tables) > 0 {
			t.Errorf("without a look-up: got %d frames with names, %d with addresses, %d open tables; want only addresses", named, placed, len(k.tables))
		}
	}
	want, _ := name(false)
	if want == 0 {
		t.Error("got no names after a look-up")
	}
	if named, _ := name(true); named != want {
		t.Errorf("got %d known names, want %d", named, want)
	}
	if err := k.Shrink(); err != nil {
		t.Fatal(err)
	}
	if named, _ := name(true); named != want {
		t.Errorf("got %d names after they were used, want %d", named, want)
	}
	for range 2 {
		if err := k.Shrink(); err != nil {
			t.Fatal(err)
		}
	}
	if named, _ := name(true); named != 0 {
		t.Errorf("got %d names that were not used, want 0", named)
	}
}

// trim closes the tables that have been unused for longest.
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
		t.Fatal("a table that was kept is missing")
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
		t.Errorf("got open tables %v, want %v", left, want)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}
