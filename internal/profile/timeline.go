package profile

import (
	"cmp"
	"iter"
	"time"
)

// Timeline is a recording: what each thread of the profiled processes did over time. A
// long run has tens of millions of events, so they are not part of it but read from where
// they are stored, see [Events].
//
// All times are in nanoseconds of CLOCK_MONOTONIC.
type Timeline struct {
	// Profile holds the tables to which events refer by [StackID], and the metadata of
	// the run. It has neither tasks nor samples. Its Meta.Start is the wall-clock time of
	// Start.
	Profile *Profile
	// Start and End are the start and end of the recording.
	Start, End int64
	// Interval is the sampling interval of a running thread, in nanoseconds.
	Interval int64
	// Resolution is the unit of times in nanoseconds if they are rounded, else 0.
	Resolution int64
	// Sampled is the value that the samples of a running thread add up to, such as cycles.
	// If it is the zero value, that is CPU time, their weight.
	Sampled ValueType

	Processes []Process
	Threads   []Thread
	Counters  []Counter
	Events    Events
	// MarkerTypes holds the types of markers.
	MarkerTypes []MarkerType

	// Reasons maps a stack to what a thread blocked in it waits for: "futex", "disk
	// read". For other stacks the reason is unknown.
	Reasons map[StackID]string
	// OffCPUWhole is set if the events include every period off the CPU, even the
	// shortest, so that a thread was running at all other times.
	OffCPUWhole bool
}

// IDs: indexes into a [Timeline]'s tables.
type (
	// ProcessID indexes [Timeline.Processes].
	ProcessID uint32
	// ThreadID indexes [Timeline.Threads].
	ThreadID uint32
	// MarkerTypeID indexes [Timeline.MarkerTypes].
	MarkerTypeID uint32
)

// Reason returns what a thread waits for, or "" if it is unknown.
func (t *Timeline) Reason(e OffCPU) string {
	if e.Reason != "" {
		return e.Reason
	}
	return t.Reasons[e.Stack]
}

// Process is a process. Another process that reuses its PID is a different one.
type Process struct {
	PID int
	// Names holds its names in order of time. Each exec adds one.
	Names []Name
	// Start is when it was created, or 0 if that was before the recording. End is when it
	// exited, or 0 if it outlived the recording.
	Start, End int64
}

// Thread is a thread.
type Thread struct {
	Process ProcessID
	TID     int
	// Names holds its names in order of time.
	Names []Name
	// Start and End are as in [Process].
	Start, End int64
}

// Name is the name of a process or thread from a time on. It is untrusted.
type Name struct {
	At   int64
	Name string
}

// LastName returns the last of names, or "" if there is none.
func LastName(names []Name) string {
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1].Name
}

// Counter is a quantity of a process over time, in columns.
type Counter struct {
	Process ProcessID
	Kind    CounterKind
	// Times is sorted. Changes holds the change of the quantity since the previous time,
	// in the unit of Kind.
	Times, Changes []int64
}

// CounterKind is the quantity of a counter.
type CounterKind uint8

// The quantities of counters.
const (
	// CounterRead and CounterWritten are the bytes that block devices transferred for the
	// process.
	CounterRead CounterKind = iota
	CounterWritten
	// CounterFaults are page faults.
	CounterFaults
	// CounterRSS is resident memory in bytes. It may also shrink.
	CounterRSS
	// CounterCPU is the CPU time of all threads together, in nanoseconds.
	CounterCPU
)

// Events provides the events of a [Timeline]. The sequences of each thread are sorted by
// time. They can be read repeatedly and concurrently. A sequence ends at an error, which
// comes without an event.
type Events interface {
	// OnCPU yields the samples of a running thread.
	OnCPU(ThreadID) iter.Seq2[OnCPU, error]
	// OffCPU yields the periods of a thread off the CPU, which do not overlap.
	OffCPU(ThreadID) iter.Seq2[OffCPU, error]
	// BlockIO yields the requests submitted by a thread, in order of completion.
	BlockIO(ThreadID) iter.Seq2[BlockIO, error]
	// Faults yields a thread's page faults.
	Faults(ThreadID) iter.Seq2[Fault, error]
	// Markers yields a thread's markers.
	Markers(ThreadID) iter.Seq2[Marker, error]
}

// OnCPU is a sample of a running thread.
type OnCPU struct {
	Time  int64
	Stack StackID
	// Weight is the time that the sample represents, in nanoseconds. Amount is what it adds
	// to Sampled, 0 if that is CPU time.
	Weight, Amount int64
	CPU            int
}

// OffCPU is a period of a thread off the CPU: it slept, waited, or was runnable but did
// not run.
type OffCPU struct {
	// Start is when the thread was switched out, or the start of the recording if that is
	// later. Duration is the time in nanoseconds until it ran again or the recording
	// ended. Runnable is the part of Duration after it was woken.
	Start, Duration, Runnable int64
	State                     TaskState
	// Stack is where it was switched out. Reason is what the thread waits for, if that is not
	// [Timeline.Reasons] of the stack.
	Stack  StackID
	Reason string
	// Waker is the task that woke it; its PID is 0 if unknown.
	Waker Task
	// WakerStack is the stack of the waker, or 0 unless requested.
	WakerStack StackID
}

// TaskState is the state in which a thread was switched out.
type TaskState uint8

// The states of threads off the CPU.
const (
	// StateRunnable: it was preempted or yielded the CPU.
	StateRunnable TaskState = iota
	// StateSleeping: it sleeps until an event or a signal.
	StateSleeping
	// StateUninterruptible: it waits, usually for a disk, and ignores signals.
	StateUninterruptible
	// StateStopped: a signal stopped it.
	StateStopped
	// StateDead: it has exited.
	StateDead
	// StateIdle: an idle kernel thread.
	StateIdle
	// StateTraced: a debugger stopped it.
	StateTraced
	// StateParked: a parked kernel thread.
	StateParked
)

// String describes the state.
func (s TaskState) String() string {
	switch s {
	case StateRunnable:
		return "runnable"
	case StateSleeping:
		return "sleeping"
	case StateUninterruptible:
		return "uninterruptible"
	case StateStopped:
		return "stopped"
	case StateDead:
		return "dead"
	case StateIdle:
		return "idle"
	case StateTraced:
		return "traced"
	case StateParked:
		return "parked"
	}
	return "unknown"
}

// BlockIO is a request to a block device.
type BlockIO struct {
	// Queued is when the request was created, Issued when it was sent to the device and
	// Completed when it was done.
	Queued, Issued, Completed int64
	// Device is the device's name, or "major:minor" in decimal.
	Device string
	// Sector is the first sector, in units of 512 bytes, and Bytes the length.
	Sector, Bytes uint64
	Op            BlockOp
	Flags         BlockFlags
	// Stack is the stack that submitted it.
	Stack StackID
	// File is the path of the file, or empty if unknown.
	File string
}

// BlockOp is the operation of a request to a block device.
type BlockOp uint8

// The operations on block devices.
const (
	BlockRead BlockOp = iota
	BlockWrite
	BlockFlush
	BlockDiscard
	BlockOther
)

// String returns the operation's lower-case name.
func (o BlockOp) String() string {
	switch o {
	case BlockRead:
		return "read"
	case BlockWrite:
		return "write"
	case BlockFlush:
		return "flush"
	case BlockDiscard:
		return "discard"
	}
	return "other"
}

// BlockFlags is a set of properties of a request.
type BlockFlags uint8

// The flags of requests to block devices.
const (
	// FlagSync: a process waits for it.
	FlagSync BlockFlags = 1 << iota
	// FlagMetadata: it is for file system metadata.
	FlagMetadata
	// FlagReadAhead: no process has requested it yet.
	FlagReadAhead
	// FlagFUA: it completes only when it is on the medium (forced unit access).
	FlagFUA
	// FlagWriteback: the kernel writes back data written earlier.
	FlagWriteback
)

// String returns the flags' names, each after a space: " sync metadata".
func (f BlockFlags) String() string {
	text := ""
	for i, name := range [...]string{"sync", "metadata", "read-ahead", "FUA", "writeback"} {
		if f&(1<<i) != 0 {
			text += " " + name
		}
	}
	return text
}

// Fault is a page fault.
type Fault struct {
	Time int64
	// Address is the accessed address.
	Address uint64
	// File and Offset are what is mapped there, with the offset in bytes. File is empty
	// for anonymous memory, or if unknown.
	File   string
	Offset uint64
	// Major: it had to read from a disk.
	Major bool
	// Latency is the time taken to handle it, in nanoseconds, or 0 if it was not
	// measured.
	Latency int64
	// Count is the number of faults that it represents, 1 if all are recorded.
	Count int64
	// Stack is the stack that accessed the memory.
	Stack StackID
}

// Marker is a hit of an event.
type Marker struct {
	Time int64
	Type MarkerTypeID
	// Values holds the values of the type's fields as text, "" if unknown. They are
	// untrusted.
	Values []string
	// Weight is in the unit of the type, 0 if it has none.
	Weight int64
	// Stack is the stack that hit the event.
	Stack StackID
}

// TriggerMarker is the name of the type of the markers of a flight recorder: the moments for which a recording
// was written. Their fields are the trigger and what was measured.
const TriggerMarker = "trigger"

// Trigger is a moment for which a flight recorder wrote a recording.
type Trigger struct {
	// After is the time since the start of the recording.
	After time.Duration
	// Name is the trigger as users write it, and Value what was measured, "" for nothing. Both are untrusted.
	Name, Value string
}

// The time around a trigger that is shown first.
const (
	BeforeTrigger = 2 * time.Second
	AfterTrigger  = time.Second
)

// Around returns the time around the first trigger, from and to times since the start, and false if there is no
// trigger.
func (a Meta) Around() (from, to time.Duration, ok bool) {
	if len(a.Triggers) == 0 {
		return 0, 0, false
	}
	at := max(0, min(a.Triggers[0].After, a.Duration))
	return max(0, at-BeforeTrigger), min(a.Duration, at+AfterTrigger), a.Duration > 0
}

// MarkerType is a type of markers.
type MarkerType struct {
	// Name is the name of the place that is hit, such as "sched:sched_switch".
	Name string
	// Event is the name of the event. It can be a pattern that several places match.
	Event string
	// Fields holds the names of fields.
	Fields []string
	// Unit is the unit of the weights of markers. If it is empty, each counts one hit.
	Unit string
	// Spans means that the markers are intervals, and that their weights are their durations.
	Spans bool
	// OfProcess means that the thread of the markers is unknown: only the process is right.
	OfProcess bool
}

// Value returns the value that markers of the type add up to.
func (t MarkerType) Value() ValueType { return ValueType{Type: t.Event, Unit: cmp.Or(t.Unit, "count")} }

// Amount returns what a marker of type t adds to the value of its type.
func (m Marker) Amount(t MarkerType) int64 {
	if t.Unit == "" {
		return 1
	}
	return m.Weight
}
