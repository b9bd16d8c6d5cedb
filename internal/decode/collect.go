package decode

import (
	"errors"
	"strings"

	"fulgur/internal/profile"
)

// collector builds a profile whose values become known as it is read.
type collector struct {
	*profile.Builder
	types   []profile.ValueType
	samples map[place]int
	list    []profile.Sample
}

// place is what samples are summed by.
type place struct {
	stack profile.StackID
	task  profile.TaskID
	cpu   int
	end   profile.End
}

func newCollector(types ...profile.ValueType) *collector {
	return &collector{Builder: profile.NewBuilder(), types: types, samples: map[place]int{}}
}

// value returns the index of a value type, which is new the first time.
func (c *collector) value(v profile.ValueType) int {
	for i, known := range c.types {
		if known == v {
			return i
		}
	}
	c.types = append(c.types, v)
	return len(c.types) - 1
}

// add adds n to value v of what was seen at a place.
func (c *collector) add(at place, v int, n int64) {
	i, ok := c.samples[at]
	if !ok {
		i = len(c.list)
		c.samples[at] = i
		c.list = append(c.list, profile.Sample{Stack: at.stack, Task: at.task, CPU: at.cpu, End: at.end})
	}
	s := &c.list[i]
	for len(s.Values) <= v {
		s.Values = append(s.Values, 0)
	}
	s.Values[v] += n
}

// errEmpty is what an input without samples gives.
var errEmpty = errors.New("no stacks in it")

// profile returns what was collected.
func (c *collector) profile(m profile.Meta) (*profile.Profile, error) {
	if len(c.list) == 0 {
		return nil, errEmpty
	}
	p := c.Profile(m, profile.Losses{})
	p.ValueTypes, p.Samples = c.types, c.list
	for i := range p.Samples {
		for len(p.Samples[i].Values) < len(c.types) {
			p.Samples[i].Values = append(p.Samples[i].Values, 0)
		}
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
