package perfevent

import (
	"errors"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Layout is the part of a perf_event_attr that determines the layout of an event's records, in a ring or in perf.data.
type Layout struct {
	// SampleType holds the fields of samples, as PERF_SAMPLE_ bits; ReadFormat those of counts, as
	// PERF_FORMAT_ bits; and BranchType those of branch records, as PERF_SAMPLE_BRANCH_ bits.
	SampleType, ReadFormat, BranchType uint64
	// UserRegs has a bit for each user register in samples, in perf's order for the machine.
	UserRegs uint64
	// SampleIDAll is whether other records end with a sample_id.
	SampleIDAll bool
}

// Has reports whether samples have a field, a PERF_SAMPLE_ bit.
func (l Layout) Has(field uint64) bool { return l.SampleType&field != 0 }

// trailerFields are the fields of a sample_id, in their order. Each takes 8 bytes.
var trailerFields = [...]uint64{
	unix.PERF_SAMPLE_TID, unix.PERF_SAMPLE_TIME, unix.PERF_SAMPLE_ID,
	unix.PERF_SAMPLE_STREAM_ID, unix.PERF_SAMPLE_CPU, unix.PERF_SAMPLE_IDENTIFIER,
}

// Trailer returns the size of the sample_id at the end of records other than samples, and the offset of one of its
// fields, a PERF_SAMPLE_ bit, or -1.
func (l Layout) Trailer(field uint64) (size, offset int) {
	offset = -1
	if !l.SampleIDAll {
		return 0, offset
	}
	for _, bit := range trailerFields {
		if !l.Has(bit) {
			continue
		}
		if bit == field {
			offset = size
		}
		size += 8
	}
	return size, offset
}

// Sample is a PERF_RECORD_SAMPLE. What its event did not sample is 0. Its slices are parts of the record.
type Sample struct {
	// Stamp has the time on the event's clock.
	Stamp
	PID, TID int
	// HasTask and HasIP report whether PID and TID, and IP, were sampled.
	HasTask, HasIP bool
	// ID is the event's ID, Period the number of events that the sample represents, IP the address of the
	// instruction, and CPU the number of the CPU.
	ID, Period, IP uint64
	CPU            uint32
	// Reads has the counts of an event, or of all events of a group: elements of ReadSize bytes, each of which
	// begins with the count and the event's ID.
	Reads    []byte
	ReadSize int
	// Chain is a call chain, innermost first, with markers of modes (PERF_CONTEXT_ constants): 64-bit words.
	Chain []byte
	// Raw is the raw data of a tracepoint. Branches is a branch stack, newest first, of structs perf_branch_entry.
	Raw, Branches []byte
	User          UserState
}

// UserState is the state of a thread in user space: its registers, and a copy of its stack.
type UserState struct {
	// ABI is that of the registers, or ABINone if the thread has no user registers, such as a kernel thread.
	ABI uint64
	// Mask has a bit for each register in Regs, which are 64-bit words.
	Mask uint64
	Regs []byte
	// Stack is the copied bytes from the stack pointer on. Full reports whether all of the requested ones could
	// be copied.
	Stack []byte
	Full  bool
}

// Values of enum perf_sample_regs_abi.
const (
	ABINone = 0
	ABI64   = 2
)

// Limits on samples.
const (
	// MaxBranches is more than any hardware records: the largest buffers have 64 branches.
	MaxBranches = 1024
	// MaxChain is more than any kernel records: its limit, a sysctl, is 127 by default.
	MaxChain = 1 << 14

	branchSize = 24 // struct perf_branch_entry
)

// Errors of [Layout.ParseSample].
var (
	errShort    = errors.New("sample cut short")
	errChain    = errors.New("sample with a call chain longer than any kernel records")
	errBranches = errors.New("sample with more branches than any hardware records")
)

// ParseSample parses the body of a sample, without the record's header. Its slices are parts of body.
func (l Layout) ParseSample(body []byte) (s Sample, err error) {
	f := Fields{B: body}
	skip := func(mask uint64) { f.Take(uint64(8 * bits.OnesCount64(l.SampleType&mask))) }
	// The fields are in the order of perf_output_sample in the kernel.
	if l.Has(unix.PERF_SAMPLE_IDENTIFIER) {
		s.ID = f.U64()
	}
	if l.Has(unix.PERF_SAMPLE_IP) {
		s.IP, s.HasIP = f.U64(), true
	}
	if l.Has(unix.PERF_SAMPLE_TID) {
		s.PID, s.TID, s.HasTask = f.ID(), f.ID(), true
	}
	if l.Has(unix.PERF_SAMPLE_TIME) {
		s.Time = f.U64()
	}
	skip(unix.PERF_SAMPLE_ADDR)
	if l.Has(unix.PERF_SAMPLE_ID) {
		s.ID = f.U64()
	}
	skip(unix.PERF_SAMPLE_STREAM_ID)
	if l.Has(unix.PERF_SAMPLE_CPU) {
		s.CPU = f.U32()
		f.U32()
	}
	if l.Has(unix.PERF_SAMPLE_PERIOD) {
		s.Period = f.U64()
	}
	if l.Has(unix.PERF_SAMPLE_READ) {
		s.Reads, s.ReadSize = l.parseRead(&f)
	}
	if l.Has(unix.PERF_SAMPLE_CALLCHAIN) {
		n := f.U64()
		if n > MaxChain {
			return s, errChain
		}
		s.Chain = f.Take(8 * n)
	}
	if l.Has(unix.PERF_SAMPLE_RAW) {
		s.Raw = f.Take(uint64(f.U32()))
	}
	if l.Has(unix.PERF_SAMPLE_BRANCH_STACK) {
		n := f.U64()
		if n > MaxBranches {
			return s, errBranches
		}
		if l.BranchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
			f.U64()
		}
		s.Branches = f.Take(n * branchSize)
		if l.BranchType&unix.PERF_SAMPLE_BRANCH_COUNTERS != 0 {
			f.Take(8 * n)
		}
	}
	l.parseUser(&f, &s.User)
	// What follows is not needed: weights, the source and address of data, the transaction, registers of
	// the interrupt, cgroup, page sizes, and AUX data.
	if f.Short {
		return s, errShort
	}
	return s, nil
}

// parseUser parses the registers and the stack of user space.
func (l Layout) parseUser(f *Fields, u *UserState) {
	if l.Has(unix.PERF_SAMPLE_REGS_USER) {
		u.ABI, u.Mask = f.U64(), l.UserRegs
		if u.ABI != ABINone {
			u.Regs = f.Take(8 * uint64(bits.OnesCount64(u.Mask)))
		}
	}
	if !l.Has(unix.PERF_SAMPLE_STACK_USER) {
		return
	}
	size := f.U64()
	if size == 0 {
		return
	}
	u.Stack = f.Take(size)
	copied := min(f.U64(), uint64(len(u.Stack)))
	u.Full = copied == uint64(len(u.Stack))
	u.Stack = u.Stack[:copied]
}

// parseRead parses a struct read_format, see [Sample.Reads].
func (l Layout) parseRead(f *Fields) (reads []byte, size int) {
	each := uint64(8 * (1 + bits.OnesCount64(l.ReadFormat&(unix.PERF_FORMAT_ID|unix.PERF_FORMAT_LOST))))
	times := uint64(8 * bits.OnesCount64(l.ReadFormat&(unix.PERF_FORMAT_TOTAL_TIME_ENABLED|unix.PERF_FORMAT_TOTAL_TIME_RUNNING)))
	if l.ReadFormat&unix.PERF_FORMAT_GROUP != 0 {
		n := f.U64()
		f.Take(times)
		reads = f.Take(each * min(n, uint64(len(f.B))))
	} else {
		// The times are between the count and its ID.
		value := f.Take(8)
		f.Take(times)
		if rest := f.Take(each - 8); value != nil && rest != nil {
			reads = append(append(make([]byte, 0, each), value...), rest...)
		}
	}
	if l.ReadFormat&unix.PERF_FORMAT_ID == 0 {
		return nil, 0 // the events of the counts are unknown
	}
	return reads, int(each)
}
