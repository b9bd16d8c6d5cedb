package naming

import (
	"fulgur/internal/capture/stacks"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// Given returns names for store's frames from a map by address, as if
// [Names.Symbolize] had found them, for tests.
func Given(store *stacks.Store, finder *debugfile.Finder, found map[uint64][]symbolize.Frame) *Names {
	n := New(store, finder, symbolize.Options{})
	for i, f := range store.Frames {
		n.found[i], n.shown[i] = found[f.Address], shownFrame{f.Address, f.Return}
	}
	return n
}
