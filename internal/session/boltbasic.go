package session

import (
	"context"
	"errors"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/stacks"
	"fulgur/internal/target"
)

// basicFrequency is about perf record's default, and odd so that it does not
// march in step with timers that fire at round rates.
const basicFrequency = 3989

// basicRun is a profile of samples without branches being taken: an on-CPU
// profile whose stacks are the interrupted instruction alone.
type basicRun struct {
	*run
	what     *onCPU
	binaries *binaries
}

// chooseBasic returns what is sampled with Basic: code of user space alone.
func (o *BoltOptions) chooseBasic() (*onCPU, error) {
	m := &onCPU{options: o.onCPU()}
	if err := errors.Join(m.complete(), m.options.complete()); err != nil {
		return nil, err
	}
	if err := m.choose(); err != nil {
		return nil, err
	}
	for i := range m.specs {
		m.specs[i].ExcludeKernel = true
	}
	return m, nil
}

// onCPU returns the options of the on-CPU profile.
func (o *BoltOptions) onCPU() *ProfileOptions {
	p := &ProfileOptions{
		Options: Options{
			Target:   o.Target,
			Duration: o.Duration,
			UserOnly: true,
			MaxDepth: 1,
			Unwind:   unwindFP, // the first frame needs no table
			RingSize: o.RingSize,
			Stderr:   o.Stderr,
			Progress: o.Progress,
		},
		Event:     o.Event,
		Frequency: o.Frequency,
	}
	if p.Frequency == 0 {
		p.Frequency = basicFrequency
	}
	if p.Duration == 0 && len(o.Command) == 0 {
		p.Duration = boltDuration
	}
	return p
}

func attachBasic(o *BoltOptions, what *onCPU, bs *binaries) (*basicRun, error) {
	what.options.Target = o.Target // a command has been launched since
	r, err := attach(what, &what.options.Options, nil)
	if err != nil {
		return nil, err
	}
	return &basicRun{run: r, what: what, binaries: bs}, nil
}

func (b *basicRun) took() time.Duration { return b.Duration }

// sample measures and hands the collector what was sampled.
func (b *basicRun) sample(ctx context.Context, launched *target.Launched) error {
	if err := b.run.sample(ctx, b.run, launched); err != nil {
		return err
	}
	b.count()
	b.store.Seal()
	for sample, value := range b.store.Samples {
		leaf := b.store.Bodies[sample.Body].Leaf
		if leaf == 0 {
			continue // a process without a user half, about to end
		}
		frame := b.store.Frames[b.store.Nodes[leaf].Frame]
		layout := b.layout(b.store.Codes[frame.Code], frame.Address)
		if err := b.binaries.collector.AddAddress(layout, frame.Address, value.Samples); err != nil {
			return err
		}
	}
	return nil
}

// layout returns one in which code that stands at an offset in its file is at
// that address.
func (b *basicRun) layout(code stacks.Code, offset uint64) bolt.Layout {
	if code.Kind != stacks.CodeFile {
		return nil
	}
	binary := b.binaries.of(code.File)
	if binary == nil {
		return nil
	}
	region, ok := binary.Region(offset, 1, offset)
	if !ok {
		return nil
	}
	return bolt.Layout{region}
}

func (b *basicRun) describeTo(report *boltReport) error {
	l, err := b.losses()
	if err != nil {
		return err
	}
	report.lost("samples", l.Samples)
	if !b.what.specs[0].IsTime() { // a clock goes on in the kernel
		report.lost("samples, of whatever process, that the kernel skipped", l.Skipped)
	}
	report.lost("times that the kernel paused sampling, as it took too long (-f lowers the rate)", l.Throttled)
	report.lost("children that were too many to follow", l.Untracked)
	report.lost("records of what processes mapped", l.Sideband)
	report.lost("processes that were gone before their mappings could be read", l.ProcessesGone)
	switch {
	case report.Samples > 0:
	case b.Missed:
		report.warn("nothing was sampled: the target ended before sampling began")
	default:
		report.warn("nothing was sampled: %s", b.what.whyNothing())
	}
	return nil
}
