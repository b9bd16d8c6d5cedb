// Package source defines sources of samples. Each source is a package beside this
// one. It has a [Subject], which defines the measurement and the meaning of its
// values, and a [Source], its programs in the kernel. docs/adding-a-probe.md shows
// how to write one.
package source

import (
	"errors"
	"slices"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/profile"
)

// Subject is the subject of a measurement. The session calls its methods in the order of
// this list.
type Subject interface {
	// Command is the name for the doctor.
	Command() doctor.Command
	// Complete checks the options and fills in defaults. Its errors are usage
	// errors.
	Complete(Common) error
	// Choose adapts to the machine, which needs privileges.
	Choose() error
	// Times describes the events in a recording. It returns false if
	// recordings do not support the samples.
	Times() (Times, bool)
	// Load loads the programs.
	Load(probe.Options) ([]Source, error)

	// Values returns the values of a sample, after the sources are attached. The
	// first is a number of occurrences. The values of a store's samples can be
	// followed by more than without a store.
	Values(*stacks.Store) []Value
	// Shown returns the index of the value that outputs show.
	Shown() int
	// Place adds the stack of a sample to the profile.
	Place(*naming.StackBuilder, stacks.Sample) profile.StackID
	// Describe completes the description of the run.
	Describe(*profile.Meta)
	// WhyNothing returns the likely causes of a profile without samples.
	WhyNothing() string
	// Notes returns additional lines for the summary.
	Notes(*stacks.Store) []string
}

// Finisher is a [Subject] that completes the samples of a store before they become a profile.
type Finisher interface {
	Finish(*stacks.Store)
}

// Collector is a [Subject] with results besides samples.
type Collector interface {
	// Collect adds what the window has besides the samples of a store to the description of the window.
	Collect(*stacks.Store, *profile.Meta) error
}

// Common is the part of a session's options that subjects depend on.
type Common struct {
	// Target is the target. A command's process is added when it is launched.
	Target *target.Target
	// UserOnly omits the kernel part of stacks.
	UserOnly bool
}

// Value is one of the values of a sample.
type Value struct {
	profile.ValueType
	// Of holds, by index of the source, the indexes of the [stacks.Values] to
	// add up.
	Of [][]int
	// Details are the details of the samples that have the value; nil means all.
	Details map[uint64]bool
}

// Sum returns the value of a sample with the given source, detail and counts.
func (v Value) Sum(source uint8, detail uint64, counted stacks.Values) (sum int64) {
	if int(source) < len(v.Of) && (v.Details == nil || v.Details[detail]) {
		for _, i := range v.Of[source] {
			sum += int64(counted[i])
		}
	}
	return sum
}

// Own returns values for a single source's [stacks.Values], in their order.
func Own(types ...profile.ValueType) []Value {
	return Sums(1, types...)
}

// Sums returns values that add up the values of several sources, each with [stacks.Values]
// of the given types in their order.
func Sums(sources int, types ...profile.ValueType) []Value {
	values := make([]Value, len(types))
	for i, t := range types {
		values[i] = Value{ValueType: t, Of: slices.Repeat([][]int{{i}}, sources)}
	}
	return values
}

// Times describes the events of a subject in a recording.
type Times struct {
	// Interval is the time between two samples of a running thread, in ns; 0 if
	// there are no samples.
	Interval int64
	// Sampled is the value that the periods of samples add up to, the zero value for CPU time.
	// If it is set, each sample represents an Interval.
	Sampled profile.ValueType
	// EveryWait means that the recording has every wait.
	EveryWait bool
}

// Source is a family of programs in the kernel. Its programs count while the gate of the run
// ([probe.Gate]) is open, which [Start] and [Stop] do for all sources of the run at once. What only
// some sources do is in interfaces of its own below, and in [Rewalker].
type Source interface {
	// Attach attaches the programs, and prepares everything that takes long.
	Attach(target.Target) error
	// Enable starts perf events. It is called right before the gate opens.
	Enable() error
	// Begin adds what was in progress when the gate opened, if that counts.
	Begin() error
	// End adds what was in progress when the gate shut, if that counts. No running program
	// found the gate open.
	End() error
	// Detach stops perf events and detaches the programs, so that code has no breakpoints
	// while fulgur looks up names. Running programs may still run for a moment.
	Detach() error
	// Settle frees memory that only the start needs. It is called once, soon after Begin.
	Settle()
	// Check is called periodically.
	Check() error
	// FollowCPUs is called when CPUs come online or go offline.
	FollowCPUs(online []int) error
	// Remap makes the kernel side assign new stack IDs to a process whose
	// address space changed.
	Remap(pid int) error
	// Renew makes the kernel side assign new IDs to all stacks and send their
	// traces again.
	Renew() error
	Targets() ([]int, error)
	Ring() ringbuf.Ring
	Counts() *stacks.Counts
	Stats() (probe.Stats, error)
	MapMemory() uint64
	Close() error
}

// Labeler is a [Subject] that knows labels of samples itself.
type Labeler interface {
	// Labels returns the labels of a sample. They come before those of the running code.
	Labels(*naming.StackBuilder, stacks.Sample) []profile.Label
}

// Delayed is a source whose samples may wait for unwind tables in user space.
type Delayed interface {
	// Needed returns the time of the oldest sample whose process's mappings are still needed, in
	// CLOCK_MONOTONIC ns, or math.MaxUint64.
	Needed() uint64
}

// Reducible is a source that can measure less, to save time.
type Reducible interface {
	// Reduce divides the rate of samples by a factor from now on, or measures one in that many short
	// waits. The weight of each sample or wait grows accordingly. The factor is a power of two; 1
	// restores the requested rate.
	Reduce(by uint64) error
}

// FileFollower is a source that depends on the files that the target maps.
type FileFollower interface {
	// Follow is called with the files that processes of the target map or are about to map: before
	// Begin with all, and later with the files of processes that map more. A file may be given
	// several times.
	Follow([]*process.File) error
}

// Limited is a source that may end the measurement early.
type Limited interface {
	// Enough returns why the measurement has to end, "" if it need not.
	Enough() string
}

// Waiting is a source that measures times, such as waits, which may be in progress at the end of a
// window.
type Waiting interface {
	// Pending returns the IDs of the stacks of everything in progress.
	Pending() ([]uint64, error)
}

// Splitter is a source that splits what is in progress at the end of a window. Other sources count
// it in the window in which it ends.
type Splitter interface {
	// BeginCut prepares for Cut. It may take a while.
	BeginCut() error
	// Cut splits everything in progress at a time in CLOCK_MONOTONIC ns. The part before counts at
	// once, the rest when it ends.
	Cut(at uint64) error
}

// Answerer is a subject whose numbers are the first answer of the summary.
type Answerer interface {
	// Answers returns lines that come before the functions.
	Answers() []string
}

// Recordable is a source whose programs send event records if [probe.Options.Timeline] is set. The
// subjects of other sources have no [Subject.Times].
type Recordable interface {
	// Event adds an event record to a recording.
	Event(record []byte, to Recorder) error
}

// EventPlacer is a [Recordable] whose events have other stacks than the traces of their IDs.
type EventPlacer interface {
	// PlaceEvents completes the stack of events in a recording.
	PlaceEvents(*naming.StackBuilder, stacks.TraceID, *EventStack)
}

// Start starts the measurement of attached sources with a common gate, at the same moment.
func Start(gate *probe.Gate, sources ...Source) error {
	if err := Each(sources, Source.Enable); err != nil {
		return err
	}
	if err := gate.Open(); err != nil {
		return err
	}
	return Each(sources, Source.Begin)
}

// Stop stops the measurement of sources, at the same moment, and detaches them. It returns a
// time in CLOCK_MONOTONIC ns after the last count. When it returns, no program of theirs runs.
func Stop(gate *probe.Gate, sources ...Source) (ended uint64, err error) {
	err = gate.Shut()
	ended = monotonic.Now()
	// Detaching takes long, and must not delay the end of others.
	return ended, errors.Join(err, Each(sources, Source.End), Each(sources, Source.Detach), rcu.Wait())
}

// Each calls f for every source that is a T: a [Source], or one of the interfaces of some sources. It
// returns all errors.
func Each[T any](sources []Source, f func(T) error) error {
	var errs []error
	for _, s := range sources {
		if t, ok := s.(T); ok {
			errs = append(errs, f(t))
		}
	}
	return errors.Join(errs...)
}

// Recorder is a recording that sources add events to. Times are in CLOCK_MONOTONIC
// ns.
type Recorder interface {
	// Times describes the requested events.
	Times() Times
	// Stack returns the recording's number of a key's stack, and counts values
	// for it. Key.Source need not be set.
	Stack(stacks.Key, stacks.Values) profile.StackID
	// Thread returns the recording's number of a thread.
	Thread(pid, tid uint32, at uint64) profile.ThreadID
	// ThreadName returns the name that a thread had at a time.
	ThreadName(pid, tid uint32, at uint64) string
	// Since returns at, or the start of the recording if that is later.
	Since(at uint64) int64
	// File returns the path of a file from the kernel side, "" if unknown.
	File(id uint64) string

	AddOnCPU(profile.ThreadID, profile.OnCPU) error
	AddOffCPU(profile.ThreadID, profile.OffCPU) error
	AddBlockIO(profile.ThreadID, profile.BlockIO) error
	AddFault(profile.ThreadID, profile.Fault) error
	AddMarkerType(profile.MarkerType) profile.MarkerTypeID
	AddMarker(profile.ThreadID, profile.Marker) error
}

// EventStack is the stack of events in a recording.
type EventStack struct {
	// Leaf is the innermost shown node.
	Leaf stacks.NodeID
	// Mark is a frame on top, if only user stacks are shown.
	Mark string
	// Reason is the wait reason of the stack, "" if unknown.
	Reason string
	// Writeback means that the kernel writes back dirty pages in the stack.
	Writeback bool
}

// Base implements [Source] for tracepoint programs that count in the kernel. Sources
// that do more override its methods.
type Base struct{ *probe.Probe }

// Enable does nothing, because tracepoints need nothing.
func (Base) Enable() error { return nil }

// Begin does nothing, because samples have no duration.
func (Base) Begin() error { return nil }

// End does nothing, because samples have no duration.
func (Base) End() error { return nil }

// Check does nothing.
func (Base) Check() error { return nil }

// FollowCPUs does nothing, because tracepoints fire on all CPUs.
func (Base) FollowCPUs([]int) error { return nil }
