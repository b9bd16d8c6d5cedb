package perfdata

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
)

// sample is the relevant part of a PERF_RECORD_SAMPLE.
type sample struct {
	pid      int32
	hasPID   bool
	time     uint64
	ip       uint64
	hasStack bool // a branch stack
	branches []bolt.Entry
}

// maxBranches is the largest accepted branch stack. The largest hardware buffers have 64
// entries.
const maxBranches = 1024

// parseSample parses the body of a sample of event a. The branches are stored in stack.
// problem describes an error, or is "".
func parseSample(a attr, body []byte, stack []bolt.Entry) (s sample, problem string) {
	f := fields{b: body}
	t := a.sampleType
	// The fields are in the order of perf_output_sample in the kernel.
	if t&unix.PERF_SAMPLE_IDENTIFIER != 0 {
		f.u64()
	}
	if t&unix.PERF_SAMPLE_IP != 0 {
		s.ip = f.u64()
	}
	if t&unix.PERF_SAMPLE_TID != 0 {
		s.pid, s.hasPID = int32(f.u32()), true
		f.u32()
	}
	if t&unix.PERF_SAMPLE_TIME != 0 {
		s.time = f.u64()
	}
	skip := t & (unix.PERF_SAMPLE_ADDR | unix.PERF_SAMPLE_ID | unix.PERF_SAMPLE_STREAM_ID | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD)
	f.take(uint64(8 * bits.OnesCount64(skip)))
	if t&unix.PERF_SAMPLE_READ != 0 {
		skipRead(&f, a.readFormat)
	}
	if t&unix.PERF_SAMPLE_CALLCHAIN != 0 {
		n := f.u64()
		f.take(8 * min(n, uint64(len(f.b))))
	}
	if t&unix.PERF_SAMPLE_RAW != 0 {
		f.take(uint64(f.u32()))
	}
	if t&unix.PERF_SAMPLE_BRANCH_STACK == 0 {
		if f.short {
			return s, "sample cut short"
		}
		return s, ""
	}
	n := f.u64()
	if a.branchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
		f.u64()
	}
	if n > maxBranches {
		return s, manyBranches
	}
	b := f.take(n * bolt.EntrySize)
	if f.short {
		return s, "sample cut short"
	}
	s.hasStack = true
	s.branches = bolt.AppendEntries(stack[:0], b)
	return s, ""
}

// skipBranches skips the raw data and the branches of a sample of event a. problem
// describes an error, or is "".
func skipBranches(f *fields, a attr) (problem string) {
	if a.sampleType&unix.PERF_SAMPLE_RAW != 0 {
		f.take(uint64(f.u32()))
	}
	if a.sampleType&unix.PERF_SAMPLE_BRANCH_STACK == 0 {
		return ""
	}
	n := f.u64()
	if n > maxBranches {
		return manyBranches
	}
	if a.branchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
		f.u64()
	}
	f.take(n * bolt.EntrySize)
	if a.branchType&unix.PERF_SAMPLE_BRANCH_COUNTERS != 0 {
		f.take(8 * n)
	}
	return ""
}

const manyBranches = "sample with more branches than any hardware records"

// skipRead skips a struct read_format.
func skipRead(f *fields, format uint64) {
	values := uint64(1)
	if format&unix.PERF_FORMAT_GROUP != 0 {
		values = f.u64()
	}
	times := uint64(bits.OnesCount64(format & (unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING)))
	each := 1 + uint64(bits.OnesCount64(format&(unix.PERF_FORMAT_ID|unix.PERF_FORMAT_LOST)))
	f.take(8 * (times + each*min(values, uint64(len(f.b)))))
}
