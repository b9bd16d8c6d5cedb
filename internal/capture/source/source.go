// Package source defines what a source of samples is. Each source is a package beside
// this one, with a [Subject], which says what is measured and what the measured values
// mean, and a [Source], its programs in the kernel. docs/adding-a-probe.md shows how
// to write one.
package source

import (
	"fmt"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Subject is what a session measures. Its methods are called in the order in which
// they stand here.
type Subject interface {
	// Command is the name for the doctor.
	Command() doctor.Command
	// Complete checks what was asked for and fills in defaults. An error is one of
	// usage.
	Complete(Common) error
	// Choose finds out what this machine can do, which takes privileges.
	Choose() error
	// Timeline describes the events in a recording. It returns false if the samples
	// have no place in one.
	Timeline() (Timeline, bool)
	// Load loads the programs.
	Load(probe.Options) ([]Source, error)

	// Values names the values of a sample, once the sources are attached. The first
	// is a number of occurrences.
	Values() []Value
	// Shown is the index of the value that outputs show.
	Shown() int
	// Place puts the stack of a sample into the profile.
	Place(*naming.StackBuilder, stacks.Sample) profile.StackID
	// Describe completes the description of the run.
	Describe(*profile.Meta)
	// WhyNothing returns the likely causes of a profile without samples.
	WhyNothing() string
	// Notes are further lines for the summary.
	Notes(*stacks.Store) []string
}

// Common is the part of a session's options that subjects depend on.
type Common struct {
	// Target is the target. A command's process is filled in when it is launched.
	Target *target.Target
	// UserOnly leaves out the kernel half of stacks.
	UserOnly bool
}

// Value is one of the values of a sample.
type Value struct {
	profile.ValueType
	// Of has, for each source by its index, the indexes of those of its
	// [stacks.Values] that are added up.
	Of [][]int
}

// Sum returns the value of what a source counted.
func (v Value) Sum(source uint8, counted stacks.Values) (sum int64) {
	if int(source) < len(v.Of) {
		for _, i := range v.Of[source] {
			sum += int64(counted[i])
		}
	}
	return sum
}

// Own returns values that are the [stacks.Values] of the only source, in their order.
func Own(types ...profile.ValueType) []Value {
	values := make([]Value, len(types))
	for i, t := range types {
		values[i] = Value{ValueType: t, Of: [][]int{{i}}}
	}
	return values
}

// Timeline describes the events of a subject in a recording.
type Timeline struct {
	// Interval is the time between two samples of a thread that runs, in ns; 0 if
	// none are taken.
	Interval int64
	// Weight is the time that a sample stands for, in ns; 0 for its period.
	Weight int64
	// EveryWait says that no time off the CPU is left out.
	EveryWait bool
}

// Source is a family of programs in the kernel.
type Source interface {
	Attach(target.Target) error
	Enable() error
	// Disable stops the measurement. A program that runs at that moment may run on
	// for a little.
	Disable() error
	// Check is called from time to time.
	Check() error
	// FollowCPUs is called when CPUs came online or went offline.
	FollowCPUs(online []int) error
	// Remap makes the kernel side name the stacks of a process anew, whose addresses
	// changed their meaning.
	Remap(pid int) error
	// Renew makes the kernel side name all stacks anew and send their traces once more.
	Renew() error
	Targets() ([]int, error)
	Ring() *ringbuf.Reader
	Counts() *stacks.Counts
	Stats() (probe.Stats, error)
	MapMemory() uint64
	Close() error

	// BeginCut prepares for Cut, which may take a while.
	BeginCut() error
	// Cut divides what goes on, at a time of CLOCK_MONOTONIC in ns: the part before it
	// is counted at once, the rest when it ends.
	Cut(at uint64) error
	// Pending returns the IDs of the stacks of what goes on.
	Pending() ([]uint64, error)

	// Event adds an event record to a recording.
	Event(record []byte, to Recorder) error
	// PlaceEvents completes the stack of events in a recording.
	PlaceEvents(*naming.StackBuilder, stacks.TraceID, *EventStack)
	// Rewalk counts the sample of a snapshot, whose stack it walks by a layout of its
	// process, or by frame pointers if that is 0.
	Rewalk(s stacks.Snapshot, layout uint64) error
}

// Recorder is a recording that sources add events to. Times are of CLOCK_MONOTONIC, in
// ns.
type Recorder interface {
	// Timeline describes the events that are asked for.
	Timeline() Timeline
	// Stack returns the recording's number of the stack of a key, and counts values for
	// it. Key.Source need not be set.
	Stack(stacks.Key, stacks.Values) profile.StackID
	// Thread returns the recording's number of a thread.
	Thread(pid, tid uint32, at uint64) profile.ThreadID
	// ThreadName returns the name of a thread at a time.
	ThreadName(pid, tid uint32, at uint64) string
	// Since returns a time, or when the recording began if it is before.
	Since(at uint64) int64
	// File returns the path of a file that the kernel side met, "" if it is not known.
	File(id uint64) string

	AddOnCPU(profile.ThreadID, profile.OnCPU) error
	AddOffCPU(profile.ThreadID, profile.OffCPU) error
	AddBlockIO(profile.ThreadID, profile.BlockIO) error
	AddFault(profile.ThreadID, profile.Fault) error
}

// EventStack is the stack of events in a recording.
type EventStack struct {
	// Leaf is the innermost node that is shown.
	Leaf stacks.NodeID
	// Mark is a frame on top, where user stacks only are shown.
	Mark string
	// Reason is what threads wait for in the stack, if that is known.
	Reason string
	// Writeback says that in the stack the kernel writes back what processes wrote
	// before.
	Writeback bool
}

// Base is a [Source] that counts in the kernel by programs on tracepoints. Sources that
// do more have methods of their own.
type Base struct{ *probe.Probe }

// Check does nothing.
func (Base) Check() error { return nil }

// FollowCPUs does nothing, as tracepoints are of all CPUs.
func (Base) FollowCPUs([]int) error { return nil }

// BeginCut does nothing, as nothing that is measured lasts.
func (Base) BeginCut() error { return nil }

// Cut does nothing.
func (Base) Cut(uint64) error { return nil }

// Pending returns none.
func (Base) Pending() ([]uint64, error) { return nil, nil }

// Event fails, as the programs send no events.
func (Base) Event([]byte, Recorder) error {
	return fmt.Errorf("%w: an event of a source without events", ringbuf.ErrRecord)
}

// PlaceEvents does nothing.
func (Base) PlaceEvents(*naming.StackBuilder, stacks.TraceID, *EventStack) {}

// Rewalk fails, as the programs send no snapshots.
func (Base) Rewalk(stacks.Snapshot, uint64) error {
	return fmt.Errorf("%w: a snapshot of a source without snapshots", ringbuf.ErrRecord)
}
