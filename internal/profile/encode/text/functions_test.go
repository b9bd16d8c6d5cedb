package text

import (
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/own"
)

// The sums of all values are those of each.
func TestFunctions(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(), "symbols": encodetest.Symbols(), "compared": encodetest.Compared(), "empty": encodetest.Empty(), "hostile": encodetest.Hostile(),
	} {
		list := Functions(p, false)
		for value := range p.ValueTypes {
			rows := tally(p, value, own.Of(p).Frames)
			if len(rows) != len(list) {
				t.Fatalf("%s: got %d functions, want %d", name, len(list), len(rows))
			}
			for i, want := range rows {
				got := list[i]
				if got.Name != want.name || got.Module != want.module || got.Self[value] != want.self || got.Total[value] != want.total {
					t.Errorf("%s, value %d: got %+v, want %+v", name, value, got, want)
				}
			}
		}
	}
}
