package offline

import (
	"context"
	"errors"
	"fmt"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/recording"
)

// filtered returns p with filters applied, without those of time.
func filtered(p *profile.Profile, list filter.List) *profile.Profile { return list.Apply(p, flame.Key) }

// timesFor returns the times to read for filters: wanted, or all if the filters need them or do more with them.
func timesFor(list filter.List, times wanted) wanted {
	switch {
	case list.NeedsTimes():
		return allTimes
	case list.PrefersTimes():
		return max(times, recordedTimes)
	}
	return times
}

// filter applies filters to the profile, and to its timeline if it has one.
func (in *input) filter(name string, list filter.List) (err error) {
	if in.line == nil {
		if list.NeedsTimes() {
			return usage.Errorf("%s", noTimesIn(name))
		}
		in.profile = filtered(in.profile, list)
		return nil
	}
	first, others := list.Split(filter.Time, filter.IgnoreTime, filter.Thread)
	if len(first) > 0 {
		if in.line, err = first.ApplyTimes(in.line, flame.Key); err != nil {
			return err
		}
		if in.profile, err = recording.Sum(in.line); err != nil {
			return err
		}
	}
	if len(others) > 0 {
		if in.line, err = others.ApplyTimes(in.line, flame.Key); err != nil {
			return err
		}
		in.profile = filtered(in.profile, others)
	}
	return nil
}

// noTimesIn says that a file has no times, and how to get one with times.
func noTimesIn(name string) string {
	if name == "-" {
		name = "standard input"
	}
	return fmt.Sprintf("%s has no times: it adds up the whole measurement. Recordings have them (fulgur record -o recording.json.gz), "+
		"their pages (.html) and perf.data files", plain.Terminal(name))
}

// exitCodeOf returns the exit code of an error: 2 for usage errors, 1 for others, and the error to report.
func exitCodeOf(ctx context.Context, err error) (int, error) {
	if errors.Is(err, usage.Err) {
		return 2, err
	}
	return 1, output.OrInterrupted(ctx, err)
}
