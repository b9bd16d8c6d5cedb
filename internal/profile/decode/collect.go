package decode

import (
	"errors"
	"fmt"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/runinfo"
)

// collector builds a profile as it is read.
type collector struct{ *profile.Collector }

func newCollector(types ...profile.ValueType) *collector {
	return &collector{profile.NewCollector(types...)}
}

// maxLabels is the maximum number of labels of a sample.
const maxLabels = 1 << 10

// errLabels is the error of a sample with more labels.
var errLabels = fmt.Errorf("a sample has more than %d labels", maxLabels)

// sampleLabels are the labels of a sample that is being read.
type sampleLabels []profile.Label

// add adds a label, unless its key is empty.
func (l *sampleLabels) add(key, value string) error {
	switch {
	case key == "":
		return nil
	case len(*l) == maxLabels:
		return errLabels
	}
	*l = append(*l, profile.Label{Key: key, Value: value})
	return nil
}

// set returns the ID of the labels, of which it keeps the first with each key.
func (c *collector) set(l sampleLabels) profile.LabelsID { return c.Labels(profile.NewLabels(l)) }

// errEmpty is the error of an input without samples.
var errEmpty = errors.New("no stacks in it")

// profile returns the collected profile. It is a conversion unless the reader finds a
// description of the run, see [restore].
func (c *collector) profile(m profile.Meta) (*profile.Profile, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	m.Converted = true
	p := c.Profile(m, profile.Losses{})
	if len(p.Samples) == 0 {
		return nil, errEmpty
	}
	return p, nil
}

// restore adds the description of its run to p. Without a readable one, p stays a
// conversion.
func restore(p *profile.Profile, description string) {
	_ = runinfo.Restore(p, description)
}

// named returns a frame without an address.
func (c *collector) named(name string, kind profile.Kind, inlined bool) profile.FrameID {
	f := profile.Frame{Function: c.Function(profile.Function{Name: name, SystemName: name}), Kind: kind, Inlined: inlined}
	if kind == profile.KindKernel { // otherwise it may be a module's
		f.Mapping = c.Mapping(profile.Mapping{Path: profile.KernelPath})
	}
	return c.Frame(f)
}

// isKernelFile reports whether a mapping with this name holds kernel code:
// "[kernel.kallsyms]", or "[nf_tables]" and "/lib/modules/6.1/nf_tables.ko" for modules.
func isKernelFile(path string) bool {
	switch {
	case strings.HasPrefix(path, "[kernel"), strings.HasPrefix(path, "[guest.kernel"):
		return true
	case strings.Contains(path, ".ko") && strings.Contains(path, "/lib/modules/"):
		return true
	}
	return false
}
