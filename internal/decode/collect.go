package decode

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"fulgur/internal/profile"
)

// collector builds a profile as it is read.
type collector struct {
	*profile.Collector
	// sums are those of the magnitudes of each value, tooMuch whether one of them is
	// larger than is counted with: some sum of samples may be, too.
	sums    []uint64
	tooMuch bool
}

func newCollector(types ...profile.ValueType) *collector {
	return &collector{Collector: profile.NewCollector(types...)}
}

// Count is that of the profile.
func (c *collector) Count(at profile.Sample, v int, n int64) {
	for len(c.sums) <= v {
		c.sums = append(c.sums, 0)
	}
	magnitude := uint64(n)
	if n < 0 {
		magnitude = -magnitude
	}
	if magnitude > math.MaxInt64-c.sums[v] {
		c.tooMuch = true
		return
	}
	c.sums[v] += magnitude
	c.Collector.Count(at, v, n)
}

// errEmpty is what an input without samples gives.
var errEmpty = errors.New("no stacks in it")

// errTooMuch is what an input gives whose values add up to more than is counted with.
var errTooMuch = fmt.Errorf("its values add up to more than %d", int64(math.MaxInt64))

// profile returns what was collected.
func (c *collector) profile(m profile.Meta) (*profile.Profile, error) {
	if c.tooMuch {
		return nil, errTooMuch
	}
	p := c.Profile(m, profile.Losses{})
	if len(p.Samples) == 0 {
		return nil, errEmpty
	}
	return p, nil
}

// named returns a frame without an address.
func (c *collector) named(name string, kind profile.Kind, inlined bool) profile.FrameID {
	f := profile.Frame{Function: c.Function(profile.Function{Name: name, SystemName: name}), Kind: kind, Inlined: inlined}
	if kind == profile.KindKernel { // or it may be that of a module
		f.Mapping = c.Mapping(profile.Mapping{Path: "[kernel.kallsyms]"})
	}
	return c.Frame(f)
}

// isKernelFile reports whether a mapping of this name holds code of the kernel:
// "[kernel.kallsyms]", or "[nf_tables]" and "/lib/modules/6.1/nf_tables.ko" for
// modules.
func isKernelFile(path string) bool {
	switch {
	case strings.HasPrefix(path, "[kernel"), strings.HasPrefix(path, "[guest.kernel"):
		return true
	case strings.Contains(path, ".ko") && strings.Contains(path, "/lib/modules/"):
		return true
	}
	return false
}
