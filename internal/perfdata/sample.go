package perfdata

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
)

// sample is the relevant part of a PERF_RECORD_SAMPLE. Its slices are parts of the record.
type sample struct {
	pid, tid     int32
	hasPID       bool
	id           uint64 // of the event
	time, period uint64
	ip           uint64
	hasIP        bool
	reads        []byte // counts with their event's ID, of readSize bytes each
	readSize     int
	chain        []byte // a call chain, innermost first, with mode markers
	raw          []byte
	branches     []byte // a branch stack, newest first
	user         userState
}

// Limits on samples. The largest hardware buffers have 64 branches. The kernel's limit of a call
// chain, a sysctl, is 127 by default.
const (
	maxBranches = 1024
	maxChain    = 1 << 14
)

// parseSample parses the body of a sample of event a. problem describes an error, or is "".
func parseSample(a *attr, body []byte) (s sample, problem string) {
	f := fields{b: body}
	t := a.sampleType
	has := func(bit uint64) bool { return t&bit != 0 }
	skip := func(mask uint64) { f.take(uint64(8 * bits.OnesCount64(t&mask))) }
	// The fields are in the order of perf_output_sample in the kernel.
	if has(unix.PERF_SAMPLE_IDENTIFIER) {
		s.id = f.u64()
	}
	if has(unix.PERF_SAMPLE_IP) {
		s.ip, s.hasIP = f.u64(), true
	}
	if has(unix.PERF_SAMPLE_TID) {
		s.pid, s.tid, s.hasPID = int32(f.u32()), int32(f.u32()), true
	}
	if has(unix.PERF_SAMPLE_TIME) {
		s.time = f.u64()
	}
	skip(unix.PERF_SAMPLE_ADDR)
	if has(unix.PERF_SAMPLE_ID) {
		s.id = f.u64()
	}
	skip(unix.PERF_SAMPLE_STREAM_ID | unix.PERF_SAMPLE_CPU)
	s.period = a.period
	if has(unix.PERF_SAMPLE_PERIOD) {
		s.period = f.u64()
	}
	if has(unix.PERF_SAMPLE_READ) {
		s.reads, s.readSize = parseRead(&f, a.readFormat)
	}
	if has(unix.PERF_SAMPLE_CALLCHAIN) {
		n := f.u64()
		if n > maxChain {
			return s, "sample with a call chain that no kernel takes"
		}
		s.chain = f.take(8 * n)
	}
	if has(unix.PERF_SAMPLE_RAW) {
		s.raw = f.take(uint64(f.u32()))
	}
	if has(unix.PERF_SAMPLE_BRANCH_STACK) {
		if problem = s.parseBranches(&f, a); problem != "" {
			return s, problem
		}
	}
	if has(unix.PERF_SAMPLE_REGS_USER) && has(unix.PERF_SAMPLE_STACK_USER) {
		s.user = parseUser(&f, a)
	}
	// What follows is not needed: weights, the source and address of data, the transaction, registers of
	// the interrupt, cgroup, page sizes, and AUX data.
	if f.short {
		return s, "sample cut short"
	}
	return s, ""
}

// parseBranches parses a branch stack.
func (s *sample) parseBranches(f *fields, a *attr) (problem string) {
	n := f.u64()
	if n > maxBranches {
		return "sample with more branches than any hardware records"
	}
	if a.branchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
		f.u64()
	}
	s.branches = f.take(n * bolt.EntrySize)
	if a.branchType&unix.PERF_SAMPLE_BRANCH_COUNTERS != 0 {
		f.take(8 * n)
	}
	return ""
}

// parseRead parses a struct read_format: of an event, or of all events of a group. It returns the
// counts, each at the start of size bytes, followed by the event's ID.
func parseRead(f *fields, format uint64) (reads []byte, size int) {
	each := uint64(8 * (1 + bits.OnesCount64(format&(unix.PERF_FORMAT_ID|unix.PERF_FORMAT_LOST))))
	times := uint64(8 * bits.OnesCount64(format&(unix.PERF_FORMAT_TOTAL_TIME_ENABLED|unix.PERF_FORMAT_TOTAL_TIME_RUNNING)))
	if format&unix.PERF_FORMAT_GROUP != 0 {
		n := f.u64()
		f.take(times)
		reads = f.take(each * min(n, uint64(len(f.b))))
	} else {
		// The times are between the count and its ID.
		value := f.take(8)
		f.take(times)
		if rest := f.take(each - 8); value != nil && rest != nil {
			reads = append(append(make([]byte, 0, each), value...), rest...)
		}
	}
	if format&unix.PERF_FORMAT_ID == 0 {
		return nil, 0 // nobody knows whose counts they are
	}
	return reads, int(each)
}
