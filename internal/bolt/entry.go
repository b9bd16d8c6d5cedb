package bolt

import "encoding/binary"

// Entry is a branch record as returned by perf and bpf_read_branch_records: struct
// perf_branch_entry of <linux/perf_event.h>, in the machine's byte order.
type Entry struct {
	// From is the address of the branch, and To the address of its target.
	From, To uint64
	// Flags are the record's bit fields.
	Flags uint64
}

// Sample holds branches of a thread that were recorded together.
type Sample struct {
	// PID is the process in our PID namespace, and TID the thread, 0 if it is unknown.
	PID, TID int
	// Time is when they were recorded, in nanoseconds of CLOCK_MONOTONIC.
	Time uint64
	// Entries are the branches, newest first.
	Entries []Entry
}

// AppendEntries appends the records in b, each [EntrySize] bytes long, to stack.
func AppendEntries(stack []Entry, b []byte) []Entry {
	u := binary.NativeEndian
	for ; len(b) >= EntrySize; b = b[EntrySize:] {
		stack = append(stack, Entry{From: u.Uint64(b), To: u.Uint64(b[8:]), Flags: u.Uint64(b[16:])})
	}
	return stack
}

// EntrySize is the length of struct perf_branch_entry, in bytes.
const EntrySize = 24

// The bit fields of [Entry.Flags], from the lowest bit: mispred, predicted, in_tx, abort,
// cycles (16 bits), type (4 bits), spec (2 bits).
const (
	// FlagMispredicted is set if the branch was mispredicted.
	FlagMispredicted = 1 << 0
	// FlagPredicted is set if the branch was predicted. If the processor does not record
	// predictions, neither FlagPredicted nor FlagMispredicted is set.
	FlagPredicted = 1 << 1
	// FlagAbort is set if a transaction was aborted here. The record is not a branch.
	FlagAbort = 1 << 3
	// FlagWrongPath is PERF_BR_SPEC_WRONG_PATH: the branch was executed speculatively and
	// never took effect.
	FlagWrongPath = 1 << specShift

	specShift = 24
	specMask  = 3 << specShift
)

// kernelBase is the first address that perf2bolt assigns to the kernel.
const kernelBase = 0xffff_8000_0000_0000

func (e Entry) empty() bool        { return e.From == 0 && e.To == 0 }
func (e Entry) mispredicted() bool { return e.Flags&FlagMispredicted != 0 }
func (e Entry) aborted() bool      { return e.Flags&FlagAbort != 0 }
func (e Entry) wrongPath() bool    { return e.Flags&specMask == FlagWrongPath }
func (e Entry) kernel() bool       { return e.From >= kernelBase || e.To >= kernelBase }

// repeats reports whether e and o are the same branch.
func (e Entry) repeats(o Entry) bool { return e.From == o.From && e.To == o.To }
