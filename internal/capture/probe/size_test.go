package probe_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/testenv"
)

// Maps that the programs do not use have tiny values where the kernel allows it, and the programs
// load anyway.
func TestUnusedMaps(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	const unused = 8 // bytes of a value
	for name, test := range map[string]struct {
		options probe.Options
		used    map[string]bool
	}{
		"frame pointers": {probe.Options{Unwind: bpf.UnwindByFramePointers, SkipRuntimes: true}, nil},
		"tables":         {probe.Options{Unwind: bpf.UnwindByBoth, SkipRuntimes: true}, map[string]bool{bpf.MapUnwindCache: true}},
		"all": {
			probe.Options{Unwind: bpf.UnwindByBoth, Labels: true},
			map[string]bool{bpf.MapUnwindCache: true, bpf.MapCodeScratch: true, bpf.MapLabelScratches: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.MaxDepth, test.options.CountEntries = 127, 1
			s, err := oncpu.Load(oncpu.Options{Options: test.options})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, name := range []string{bpf.MapUnwindCache, bpf.MapCodeScratch, bpf.MapLabelScratches} {
				m := s.Maps[name]
				want := test.used[name] || name != bpf.MapLabelScratches && testenv.KernelBefore(t, 6, 8)
				if used := m.ValueSize() > unused; m.Type() != ebpf.PerCPUArray || used != want {
					t.Errorf("%s, a %v with values of %d bytes: used: %v, want %v", name, m.Type(), m.ValueSize(), used, want)
				}
			}
		})
	}
}
