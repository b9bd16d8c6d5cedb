package profile

import (
	"cmp"
	"slices"
	"time"
)

// MaxSlowest is the maximum number of the slowest intervals of a profile.
const MaxSlowest = 64

// SlowInterval is one of the slowest intervals of a measurement, such as requests. A thread runs, waits for a CPU,
// or waits for something else, the rest of its length.
type SlowInterval struct {
	Begin                     time.Time
	Length, Running, Runnable time.Duration
	// Slow is set if the interval is on the slow side.
	Slow bool
	// PID and TID are the process and the thread, 0 if they mean nothing here, and Comm is the name of the
	// thread. It is untrusted.
	PID, TID int
	Comm     string
	// Fields are arguments of the event at which the interval began, and IDs of the trace that it belongs to. They
	// are untrusted.
	Fields []Label
}

// Waiting returns the time for which the thread waited for something other than a CPU.
func (i SlowInterval) Waiting() time.Duration { return max(i.Length-i.Running-i.Runnable, 0) }

// maxSlowestText is the maximum size of the texts of the slowest intervals, in bytes, and maxSlowestField that of
// one of them.
const (
	maxSlowestText  = 128 << 10
	maxSlowestField = 1 << 10
)

// Slowest returns the slowest of intervals, the slowest first: at most [MaxSlowest], with texts of a limited size.
func Slowest(all []SlowInterval) []SlowInterval {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b SlowInterval) int {
		return cmp.Or(cmp.Compare(b.Length, a.Length), a.Begin.Compare(b.Begin))
	})
	all = all[:min(len(all), MaxSlowest)]
	size := 0
	for n := range all {
		i := &all[n]
		i.Comm = shortField(i.Comm)
		size += len(i.Comm)
		i.Fields = slices.Clone(i.Fields)
		for f := range i.Fields {
			l := &i.Fields[f]
			l.Key, l.Value = shortField(l.Key), shortField(l.Value)
			size += len(l.Key) + len(l.Value) + 1
		}
		if size > maxSlowestText {
			return all[:n]
		}
	}
	return all
}

// shortField returns a text that is truncated to maxSlowestField.
func shortField(s string) string {
	if len(s) > maxSlowestField {
		return cutText(s, maxSlowestField)
	}
	return s
}
