package probe_test

import (
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/sources"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind/unwindmap"
)

// All program families can be loaded with the same unwind tables, and none counts the
// tables' memory as its own.
func TestSharedTables(t *testing.T) {
	testenv.Root(t)
	tables, err := unwindmap.New(unwindmap.Options{Few: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tables.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, subject := range sources.All() {
		t.Run(string(subject.Command()), func(t *testing.T) {
			o := probe.Options{MaxDepth: 127, CountEntries: 1, Unwind: bpf.UnwindByBoth, Tables: tables.Replacements()}
			loaded, err := subject.Load(o)
			if err != nil {
				t.Fatal(err)
			}
			s := loaded[0]
			defer s.Close()
			if limit := uint64(20 << 20); s.MapMemory() == 0 || s.MapMemory() > limit {
				t.Errorf("got maps of %d bytes, want 1 to %d", s.MapMemory(), limit)
			}
		})
	}
}
