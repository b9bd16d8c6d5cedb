package perfevent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attr says what an event counts, when, and which records its ring gets. The
// zero value is a hardware cycle counter that never samples.
type Attr struct {
	// Type is the number of the PMU: one of the PERF_TYPE_ constants, or
	// what /sys/bus/event_source/devices/PMU/type says.
	Type uint32
	// Config, Config1 and Config2 choose the event within the PMU.
	Config, Config1, Config2 uint64

	// Period is the number of events between samples. It is ignored if
	// Frequency is not 0.
	Period uint64
	// Frequency is the rate of samples that the kernel aims at, in Hz.
	Frequency uint64

	// Precise asks for samples whose instruction pointer is nearer to the
	// instruction that caused them, from 0, no wish, to 3, exact. The kernel
	// refuses what the PMU cannot do.
	Precise int

	// BranchSampleType, if not 0, asks for the branches before each sample:
	// bits of PERF_SAMPLE_BRANCH_ that say which. It takes a PMU that
	// records branches.
	BranchSampleType uint64

	// Disabled opens the event stopped, until [Event.Enable].
	Disabled bool
	// The parts of the machine whose events do not count.
	ExcludeUser, ExcludeKernel, ExcludeHypervisor, ExcludeIdle bool

	// Mmap2 asks for [Mmap2] records of executable mappings.
	Mmap2 bool
	// Comm asks for [Comm] records; CommExec marks those that come from an
	// execve.
	Comm, CommExec bool
	// Task asks for [Fork] and [Exit] records.
	Task bool
	// SampleIDAll ends every record with its time.
	SampleIDAll bool
	// MonotonicClock takes times from CLOCK_MONOTONIC, the clock of
	// bpf_ktime_get_ns, in place of the scheduler's.
	MonotonicClock bool
	// Watermark is the number of bytes in the ring from which on its file
	// descriptor polls as readable; 0 leaves the kernel's default.
	Watermark uint32
}

// raw returns a as the kernel wants it.
func (a Attr) raw() *unix.PerfEventAttr {
	r := &unix.PerfEventAttr{
		Type:   a.Type,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: a.Config,
		Ext1:   a.Config1,
		Ext2:   a.Config2,
		Sample: a.Period,
		// What Event.Read expects.
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
	}
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{a.Disabled, unix.PerfBitDisabled},
		{a.ExcludeUser, unix.PerfBitExcludeUser},
		{a.ExcludeKernel, unix.PerfBitExcludeKernel},
		{a.ExcludeHypervisor, unix.PerfBitExcludeHv},
		{a.ExcludeIdle, unix.PerfBitExcludeIdle},
		// mmap says that executable mappings are wanted, mmap2 in which form.
		{a.Mmap2, unix.PerfBitMmap | unix.PerfBitMmap2},
		{a.Comm, unix.PerfBitComm},
		{a.CommExec, unix.PerfBitCommExec},
		{a.Task, unix.PerfBitTask},
		{a.SampleIDAll, unix.PerfBitSampleIDAll},
		{a.MonotonicClock, unix.PerfBitUseClockID},
		{a.Frequency != 0, unix.PerfBitFreq},
		{a.Watermark != 0, unix.PerfBitWatermark},
	} {
		if f.set {
			r.Bits |= f.bit
		}
	}
	r.Bits |= uint64(a.Precise) * unix.PerfBitPreciseIPBit1 // two bits, the lower one first
	if a.Frequency != 0 {
		r.Sample = a.Frequency
	}
	if a.SampleIDAll {
		r.Sample_type = unix.PERF_SAMPLE_TIME
	}
	if a.BranchSampleType != 0 {
		r.Sample_type |= unix.PERF_SAMPLE_BRANCH_STACK
		r.Branch_sample_type = a.BranchSampleType
	}
	if a.MonotonicClock {
		r.Clockid = unix.CLOCK_MONOTONIC
	}
	r.Wakeup = a.Watermark
	return r
}
