package session

import (
	"fmt"

	"fulgur/internal/perfevent"
	"fulgur/internal/source/oncpu"
)

// DefaultFrequency is bcc's: low, and odd so that it does not march in step
// with timers that fire at round rates.
const DefaultFrequency = 49

// hardMaxDepth is the room for frames in the kernel side's records,
// bpf/record.h.
const hardMaxDepth = 127

// usageError is an [ErrUsage] that says what is wrong and nothing else.
type usageError string

func (e usageError) Error() string        { return string(e) }
func (e usageError) Is(target error) bool { return target == ErrUsage }

func usagef(format string, args ...any) error {
	return usageError(fmt.Sprintf(format, args...))
}

// complete checks o against this machine's limits and fills in defaults.
func (o *Options) complete() error {
	if o.UserOnly && o.KernelOnly {
		return usagef("user stacks only and kernel stacks only exclude each other")
	}
	if o.Frequency > 0 && o.Period > 0 {
		return usagef("a frequency and a period exclude each other")
	}
	if o.Frequency == 0 && o.Period == 0 {
		o.Frequency = DefaultFrequency
	}
	if limit, err := perfevent.MaxSampleRate(); err == nil && o.Frequency > limit {
		return usagef("frequency %d Hz is above the %d Hz that the kernel allows; lower it, or raise sysctl kernel.perf_event_max_sample_rate", o.Frequency, limit)
	}
	if err := o.completeDepth(); err != nil {
		return err
	}
	o.RingSize = orDefault(o.RingSize, oncpu.DefaultRingSize)
	o.CountEntries = orDefault(o.CountEntries, oncpu.DefaultCountEntries)
	o.SeenEntries = orDefault(o.SeenEntries, oncpu.DefaultSeenEntries)
	return nil
}

// completeDepth limits the depth to what the kernel walks, so that a stack cut
// there is known to be cut.
func (o *Options) completeDepth() error {
	limit, err := perfevent.MaxStack()
	if err != nil {
		return err
	}
	switch {
	case o.MaxDepth > limit:
		return usagef("depth %d is above the %d frames that the kernel walks (sysctl kernel.perf_event_max_stack)", o.MaxDepth, limit)
	case o.MaxDepth > hardMaxDepth:
		return usagef("depth %d is above the %d frames that a stack record holds", o.MaxDepth, hardMaxDepth)
	case o.MaxDepth < 0:
		return usagef("depth %d is negative", o.MaxDepth)
	case o.MaxDepth == 0:
		o.MaxDepth = min(limit, hardMaxDepth)
	}
	return nil
}

func orDefault(n, def uint32) uint32 {
	if n == 0 {
		return def
	}
	return n
}

// specs returns the events to sample.
func (o *Options) specs() ([]perfevent.Spec, error) {
	if o.Event == "" {
		return perfevent.DefaultEvents()
	}
	spec, err := perfevent.ParseEvent(o.Event)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return []perfevent.Spec{spec}, nil
}
