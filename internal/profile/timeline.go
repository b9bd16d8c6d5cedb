package profile

import "iter"

// Timeline is a recording: what each thread of the profiled processes did, in
// time. The events themselves, of which a long run has tens of millions, are
// not part of it but read from where they are kept, see [Events].
//
// All times are in nanoseconds of CLOCK_MONOTONIC.
type Timeline struct {
	// Profile holds the tables that events refer to by [StackID], and the
	// description of the run; it has neither tasks nor samples. Its
	// Meta.Start is the wall-clock time of Start.
	Profile *Profile
	// Start and End are the first and last instant of the recording.
	Start, End int64
	// Interval is the time between two samples of a running thread, in
	// nanoseconds.
	Interval int64

	Processes []Process
	Threads   []Thread
	Counters  []Counter
	Events    Events

	// Reasons says what a thread waits for that blocks in a stack: "futex",
	// "disk read". A stack that is not in it waits for what is not known.
	Reasons map[StackID]string
	// OffCPUWhole says that every time off the CPU is among the events, the
	// shortest included, so that a thread ran whenever it was not off it.
	OffCPUWhole bool
}

// Identifiers into a [Timeline]'s tables.
type (
	// ProcessID indexes [Timeline.Processes].
	ProcessID uint32
	// ThreadID indexes [Timeline.Threads].
	ThreadID uint32
	// CounterID indexes [Timeline.Counters].
	CounterID uint32
)

// Process is a process that was seen. A PID that was used again is another one.
type Process struct {
	PID int
	// Names are what it was called, the first first: that of the program is
	// another after each exec.
	Names []Name
	// Start and End are when it was created and when it exited, 0 if that was
	// before the recording began or after its end.
	Start, End int64
}

// Thread is a thread that was seen.
type Thread struct {
	Process ProcessID
	TID     int
	// Names are what it was called, the first first.
	Names []Name
	// Start and End are as in [Process].
	Start, End int64
}

// Name is a name that a process or thread had from a time on. It is untrusted
// text.
type Name struct {
	At   int64
	Name string
}

// LastName returns the last of names, which is what a thing is called that
// renamed itself, or "" if there is none.
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
	// Times are sorted. Changes has for each the amount by which the quantity
	// changed since the time before, in the unit of Kind.
	Times, Changes []int64
}

// CounterKind tells what a counter counts.
type CounterKind uint8

// The quantities that are counted.
const (
	// CounterRead and CounterWritten are bytes that block devices transferred
	// for the process.
	CounterRead CounterKind = iota
	CounterWritten
	// CounterFaults are page faults.
	CounterFaults
	// CounterRSS is resident memory in bytes, which also shrinks.
	CounterRSS
	// CounterCPU is time on a CPU, in nanoseconds, of all threads together.
	CounterCPU
)

// Events are the events of a [Timeline]. The sequences of one thread are in
// order of time; each may be read many times, and several at once. A sequence
// ends with an error, which then has no event beside it.
type Events interface {
	// OnCPU yields the samples of a running thread.
	OnCPU(ThreadID) iter.Seq2[OnCPU, error]
	// OffCPU yields the times that a thread was off the CPU, which do not
	// overlap.
	OffCPU(ThreadID) iter.Seq2[OffCPU, error]
	// BlockIO yields the requests that a thread submitted, in the order of
	// their completion.
	BlockIO(ThreadID) iter.Seq2[BlockIO, error]
	// Faults yields a thread's page faults.
	Faults(ThreadID) iter.Seq2[Fault, error]
}

// OnCPU is a sample of a thread that ran.
type OnCPU struct {
	Time  int64
	Stack StackID
	// Weight is the time that the sample stands for, in nanoseconds.
	Weight int64
	CPU    int
}

// OffCPU is a time that a thread was off the CPU: it slept, waited, or could
// have run but did not.
type OffCPU struct {
	// Start is when the thread was switched out, or when the recording began
	// if that was before. Duration is how long until it ran again or the
	// recording ended, Runnable the part of that after it was woken, both in
	// nanoseconds.
	Start, Duration, Runnable int64
	State                     TaskState
	// Stack is where it was switched out.
	Stack StackID
	// Waker woke it; its PID is 0 if that is not known.
	Waker Task
	// WakerStack is where the waker was, 0 unless that was asked for.
	WakerStack StackID
}

// TaskState is the state that a thread was switched out in.
type TaskState uint8

// The states of threads off the CPU.
const (
	// StateRunnable: it was preempted or gave the CPU up.
	StateRunnable TaskState = iota
	// StateSleeping: it sleeps until an event or a signal.
	StateSleeping
	// StateUninterruptible: it waits, mostly for a disk, and no signal ends it.
	StateUninterruptible
	// StateStopped: a signal stopped it.
	StateStopped
	// StateDead: it has exited.
	StateDead
	// StateIdle: it is a kernel thread without work.
	StateIdle
	// StateTraced: a debugger stopped it.
	StateTraced
	// StateParked: it is a kernel thread that was put aside.
	StateParked
)

// String returns the state as ps names it, and what that means.
func (s TaskState) String() string {
	switch s {
	case StateRunnable:
		return "R (runnable)"
	case StateSleeping:
		return "S (sleeping)"
	case StateUninterruptible:
		return "D (uninterruptible)"
	case StateStopped:
		return "T (stopped)"
	case StateDead:
		return "X (dead)"
	case StateIdle:
		return "I (idle)"
	case StateTraced:
		return "t (traced)"
	case StateParked:
		return "P (parked)"
	}
	return "unknown"
}

// BlockIO is a request to a block device.
type BlockIO struct {
	// Queued is when the request was born, Issued when the device got it and
	// Completed when it was done.
	Queued, Issued, Completed int64
	// Device is the device's name, or "major:minor" in decimal.
	Device string
	// Sector is the first one, in units of 512 bytes, Bytes the length.
	Sector, Bytes uint64
	Op            BlockOp
	Flags         BlockFlags
	// Stack is where it was submitted.
	Stack StackID
	// File is the path of the file that it is for, empty if not known.
	File string
}

// BlockOp is what a request to a block device does.
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

// BlockFlags are a set of what is special about a request.
type BlockFlags uint8

// The flags of requests to block devices.
const (
	// FlagSync: somebody waits for it.
	FlagSync BlockFlags = 1 << iota
	// FlagMetadata: it is for the file system's own data.
	FlagMetadata
	// FlagReadAhead: nobody asked for it yet.
	FlagReadAhead
	// FlagFUA: it must reach the medium before it is done.
	FlagFUA
	// FlagWriteback: the kernel writes what processes wrote earlier.
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
	// Address is the one that was touched.
	Address uint64
	// File and Offset are what is mapped there, in bytes from the file's
	// start; File is empty for memory without one, or if it is not known.
	File   string
	Offset uint64
	// Major: something had to be read from a disk.
	Major bool
	// Latency is how long handling it took, in nanoseconds, 0 if that was not
	// measured.
	Latency int64
	// Count is how many faults it stands for, 1 where all are recorded.
	Count int64
	// Stack is where the memory was touched.
	Stack StackID
}
