package branches

import (
	"cmp"
	"context"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/session"
)

// basicFrequency is close to perf record's default, and odd to avoid lockstep with
// timers of round rates.
const basicFrequency = 3989

// basicRun is a measurement without branches: an on-CPU profile whose stacks consist
// of the interrupted instruction.
type basicRun struct {
	options  *Options
	sampling *session.UserSampling
	binaries *binaries
	samples  session.UserSamples
}

// samplingOptions returns the sampling options for Basic: user code only.
func (o *Options) samplingOptions() *session.ProfileOptions {
	p := &session.ProfileOptions{
		Options: session.Options{
			Target:   o.Target,
			Duration: o.Duration,
			UserOnly: true,
			MaxDepth: 1,
			Unwind:   "fp", // the first frame needs no table
			RingSize: o.RingSize,
			Stderr:   o.Stderr,
			Progress: o.Progress,
		},
		Config: oncpu.Config{Event: o.Event, Frequency: cmp.Or(o.Frequency, basicFrequency)},
	}
	if p.Duration == 0 && len(o.Command) == 0 {
		p.Duration = defaultDuration
	}
	return p
}

func (b *basicRun) took() time.Duration { return b.samples.Duration }
func (b *basicRun) close() error        { return nil }

// sample measures and adds the samples to the collector.
func (b *basicRun) sample(ctx context.Context, launched *target.Launched) error {
	// The command was launched after sampling was prepared.
	return b.sampling.Sample(ctx, b.options.Target, launched, b.add)
}

// add adds samples to the collector.
func (b *basicRun) add(samples session.UserSamples) error {
	b.samples = samples
	store := samples.Store
	for sample, value := range store.Samples {
		leaf := store.Traces[sample.Trace].Leaf
		if leaf == 0 {
			continue // no user stack: the process is about to exit
		}
		frame := store.Frames[store.Nodes[leaf].Frame]
		layout := b.layout(store.Codes[frame.Code], frame.Address)
		if err := b.binaries.collector.AddAddress(layout, frame.Address, value.Samples()); err != nil {
			return err
		}
	}
	return nil
}

// layout returns a layout that maps code to addresses equal to its file offsets.
func (b *basicRun) layout(code stacks.Code, offset uint64) bolt.Layout {
	if code.Kind != stacks.CodeFile {
		return bolt.Layout{}
	}
	binary := b.binaries.of(code.File)
	if binary == nil {
		return bolt.Layout{}
	}
	region, ok := binary.Region(offset, 1, offset)
	if !ok {
		return bolt.Layout{}
	}
	return bolt.Layout{}.With(region)
}

func (b *basicRun) describeTo(report *report) error {
	l := b.samples.Losses
	if b.sampling.Event().IsTime() {
		l[profile.LossSkipped] = 0 // a clock also runs in the kernel
	}
	report.losses(profile.Losses{
		profile.LossUnsent: l.Uncounted(), profile.LossSkipped: l[profile.LossSkipped], profile.LossThrottled: l[profile.LossThrottled],
		profile.LossUntracked: l[profile.LossUntracked], profile.LossProcessesGone: l[profile.LossProcessesGone],
	})
	report.lostMappings(l[profile.LossSideband])
	switch {
	case report.Samples > 0:
	case b.samples.Missed:
		report.warn("nothing was sampled: the target exited before sampling began")
	default:
		report.warn("nothing was sampled: %s", b.sampling.WhyNothing())
	}
	return nil
}
