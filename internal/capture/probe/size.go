package probe

import "fulgur/internal/message/usage"

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
