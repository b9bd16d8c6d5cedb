package probe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"fulgur/internal/bpf"
	"fulgur/internal/message/usage"
)

// MaxEntries is the maximum number of entries of a map that users may request. A
// count map of this size takes about 1 GiB.
const MaxEntries = 1 << 24

// CompleteSize sets a size that was not given to preset. It fails with a [usage.Err] on
// one out of range.
func CompleteSize(option usage.Option, size *uint32, preset, minimum, maximum uint32) error {
	if *size == 0 {
		*size = preset
	}
	if *size < minimum || *size > maximum {
		return usage.Errorf("%s %d is out of range: give %d to %d", option, *size, minimum, maximum)
	}
	return nil
}

// shrinkUnused shrinks the values of maps that the programs do not use with these options. The maps
// have a large value for each possible CPU, and virtual machines may have hundreds. The verifier
// removes the code that uses the maps.
func shrinkUnused(spec *ebpf.CollectionSpec, o Options) {
	unused := map[string]bool{bpf.MapLabelScratches: !o.Labels}
	if verifiesCalledOnly() {
		unused[bpf.MapUnwindCache] = o.Unwind == bpf.UnwindByFramePointers && o.Tables == nil
		unused[bpf.MapCodeScratch] = o.SkipRuntimes
	}
	for name, shrink := range unused {
		if m := spec.Maps[name]; m != nil && shrink {
			m.ValueSize = 8
			m.Key, m.Value = nil, nil // its BTF has the usual size
		}
	}
}

// verifiesCalledOnly reports whether the kernel verifies only the global functions that a program
// calls with its options: since Linux 6.8. Earlier ones verify all of them, and refuse accesses
// past the end of a value.
func verifiesCalledOnly() bool {
	version, err := features.LinuxVersionCode()
	return err == nil && version >= 6<<16|8<<8
}
