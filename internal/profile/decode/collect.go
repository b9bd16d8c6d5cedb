package decode

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/runinfo"
)

// collector builds a profile as it is read.
type collector struct {
	*profile.Collector
	labels    []profile.Label // of the sample that is being read
	labelText int64           // what the labels of all samples may still have, in bytes
	lost      uint64          // samples that the input says were lost
	unread    uint64          // lines that were not understood
}

func newCollector(types ...profile.ValueType) *collector {
	return &collector{Collector: profile.NewCollector(types...), labelText: profile.MaxUnpacked}
}

// maxLabels is the maximum number of labels of a sample.
const maxLabels = 1 << 10

// Errors of inputs with too many labels.
var (
	errLabels    = fmt.Errorf("a sample has more than %d labels", maxLabels)
	errLabelText = fmt.Errorf("the labels of its samples have more than %d GiB of text", profile.MaxUnpacked>>30)
)

// label adds a label to the sample that is being read. Any number of samples may refer to the same
// long text, which takes time for each.
func (c *collector) label(l profile.Label) error {
	if len(c.labels) == maxLabels {
		return errLabels
	}
	if c.labelText -= int64(len(l.Key) + len(l.Value) + len(l.Unit)); c.labelText < 0 {
		return errLabelText
	}
	c.labels = append(c.labels, l)
	return nil
}

// labelSet returns the ID of the labels of a sample, and begins the next sample.
func (c *collector) labelSet() profile.LabelsID {
	id := c.Labels(profile.AllLabels(c.labels))
	c.labels = c.labels[:0]
	return id
}

// foreignText returns an error if most lines of a text were not understood, so that the others only
// look like the format by chance: prose with numbers, source code, a configuration. certain is the
// number of lines that were read and that few other texts have, likely that of the other ones.
func (c *collector) foreignText(certain, likely uint64) error {
	const few = 8 // messages of a program around its profile
	if c.unread <= likely || certain > 0 && (c.unread <= few || c.unread/4 <= certain) {
		return nil
	}
	understood := certain + likely
	return fmt.Errorf("only %d of %d lines are of this format, so it is another one, or remove the others first", understood, understood+c.unread)
}

// errEmpty is the error of an input without samples.
var errEmpty = errors.New("no stacks in it")

// profile returns the collected profile. It is a conversion unless the reader finds a
// description of the run, see [restore].
func (c *collector) profile(m profile.Meta) (*profile.Profile, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	m.Converted = true
	p := c.Profile(m, profile.Losses{profile.LossRing: c.lost, profile.LossUnread: c.unread})
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

// Function interns a function. A name that is missing is that of the linker; without any name, it is none.
func (c *collector) Function(f profile.Function) profile.FunctionID {
	f.Name = cmp.Or(f.Name, f.SystemName)
	if f.Name == "" {
		return 0
	}
	return c.Collector.Function(f)
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
