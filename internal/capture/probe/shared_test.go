package probe_test

import (
	"io"
	"testing"

	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind/unwindmap"
)

// All families can be loaded with the same unwind tables, whose memory is none of
// theirs.
func TestSharedTables(t *testing.T) {
	testenv.EveryKernel(t)
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
	type source interface {
		io.Closer
		MapMemory() uint64
	}
	for name, load := range map[string]func(probe.Options) (source, error){
		"oncpu":   func(o probe.Options) (source, error) { return oncpu.Load(oncpu.Options{Options: o}) },
		"offcpu":  func(o probe.Options) (source, error) { return offcpu.Load(offcpu.Options{Options: o}) },
		"faults":  func(o probe.Options) (source, error) { return faults.Load(faults.Options{Options: o}) },
		"blockio": func(o probe.Options) (source, error) { return blockio.Load(blockio.Options{Options: o}) },
	} {
		t.Run(name, func(t *testing.T) {
			o := probe.Options{MaxDepth: 127, CountEntries: 1, Unwind: probe.ByBoth, Tables: tables.Replacements()}
			s, err := load(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if most := uint64(16 << 20); s.MapMemory() == 0 || s.MapMemory() > most {
				t.Errorf("maps of %d bytes, want some, and at most %d", s.MapMemory(), most)
			}
		})
	}
}
