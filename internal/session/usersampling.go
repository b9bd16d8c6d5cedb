package session

import (
	"context"
	"errors"
	"time"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// UserSampling samples user-space code for callers that need addresses instead
// of a profile.
type UserSampling struct {
	what    *oncpu.Subject
	options *Options
}

// UserSamples is the result of a [UserSampling].
type UserSamples struct {
	Store    *stacks.Store
	Duration time.Duration
	Losses   profile.Losses
	// Missed reports whether the target exited before sampling began.
	Missed bool
}

// NewUserSampling checks o, fills in defaults and chooses the event.
func NewUserSampling(o *ProfileOptions) (*UserSampling, error) {
	m := oncpu.New(o.Config)
	if err := o.complete(m); err != nil {
		return nil, err
	}
	if err := m.Choose(); err != nil {
		return nil, err
	}
	for i := range m.Specs {
		m.Specs[i].ExcludeKernel = true
	}
	return &UserSampling{what: m, options: &o.Options}, nil
}

// Event returns the sampled event.
func (s *UserSampling) Event() perfevent.Spec { return s.what.Specs[0] }

// Sample samples t until the measurement ends, and calls add with the result,
// while the files of its store are open.
func (s *UserSampling) Sample(ctx context.Context, t target.Target, launched *target.Launched, add func(UserSamples) error) (err error) {
	s.options.Target = t
	r, err := newRun(s.what, s.options, nil)
	if err != nil {
		return doctor.Explain(err, "sampling "+t.String())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.sample(ctx, launched); err != nil {
		return err
	}
	r.count()
	r.store.Seal()
	losses, _, err := r.losses()
	if err != nil {
		return err
	}
	return add(UserSamples{Store: r.store, Duration: r.loop.Duration, Losses: losses, Missed: r.loop.Missed})
}

// WhyNothing returns the likely causes if there are no samples.
func (s *UserSampling) WhyNothing() string { return s.what.WhyNothing() }
