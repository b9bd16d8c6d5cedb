package session

import (
	"context"
	"time"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// UserSampling samples user-space code for callers that need addresses instead
// of a profile.
type UserSampling struct {
	what    *oncpu.Subject
	options *Options
	run     *run
}

// NewUserSampling checks o, fills in defaults and chooses the event.
func NewUserSampling(o *ProfileOptions) (*UserSampling, error) {
	m := oncpu.New(o.config())
	if _, err := complete(m, &o.Options); err != nil {
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

// Attach opens everything, with sampling not yet enabled. The caller must call
// Close, also after an error.
func (s *UserSampling) Attach(t target.Target) (err error) {
	s.options.Target = t
	s.run, err = attach(s.what, s.options, nil)
	return err
}

// Sample samples until the measurement ends, and returns the stacks with their
// counts.
func (s *UserSampling) Sample(ctx context.Context, launched *target.Launched) (*stacks.Store, error) {
	if err := s.run.sample(ctx, s.run, launched); err != nil {
		return nil, err
	}
	s.run.count()
	s.run.store.Seal()
	return s.run.store, nil
}

// Duration returns how long it sampled.
func (s *UserSampling) Duration() time.Duration { return s.run.Duration }

// Missed reports whether the target exited before sampling began.
func (s *UserSampling) Missed() bool { return s.run.Missed }

// Losses returns what could not be recorded.
func (s *UserSampling) Losses() (profile.Losses, error) { return s.run.losses() }

// WhyNothing returns the likely causes if there are no samples.
func (s *UserSampling) WhyNothing() string { return s.what.WhyNothing() }

// Close releases everything that Attach opened.
func (s *UserSampling) Close() error { return s.run.close() }
