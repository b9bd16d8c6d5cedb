package perfevent

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attr configures an event: what it counts, when it samples, and which records its ring
// receives. The zero value is a hardware cycle counter that never samples.
type Attr struct {
	// Type is the number of the PMU: a PERF_TYPE_ constant, or the contents of
	// /sys/bus/event_source/devices/PMU/type.
	Type uint32
	// Config, Config1 and Config2 choose the event within the PMU. For a breakpoint, Config1 is the
	// address, Config2 the length in bytes, and BreakpointType a constant such as [BreakpointExecute].
	Config, Config1, Config2 uint64
	BreakpointType           uint32

	// Period is the number of events between samples. It is ignored if
	// Frequency is not 0.
	Period uint64
	// Frequency is the sampling rate that the kernel aims for, in Hz.
	Frequency uint64

	// Precise requests a more precise instruction pointer, from 0 (no request) to 3
	// (exact), as precise_ip. The kernel rejects a precision that the PMU does not
	// support.
	Precise int

	// BranchSampleType, if not 0, requests the branches before each sample:
	// PERF_SAMPLE_BRANCH_ bits select which. It requires a PMU that records branches.
	BranchSampleType uint64

	// SampleType requests fields of the samples in the event's ring, as PERF_SAMPLE_ bits, such as
	// unix.PERF_SAMPLE_IP. Without any, and without the two fields below, samples are empty.
	SampleType uint64
	// UserRegs requests user registers of the interrupted thread, by a mask such as [AllUserRegs]. UserStack requests
	// a copy of that many bytes of its user stack: a multiple of 8, up to [MaxUserStack].
	UserRegs  uint64
	UserStack uint32
	// ExcludeKernelChain leaves the kernel out of call chains.
	ExcludeKernelChain bool

	// Inherit also counts and samples the threads and processes that the thread starts from now on. Such an event
	// can have a ring only if it is bound to one CPU.
	Inherit bool
	// InheritThread limits Inherit to threads of the same process. It needs Linux 5.13; older kernels return EINVAL.
	InheritThread bool
	// EnableOnExec starts the event at the thread's next execve(2).
	EnableOnExec bool
	// Switches requests [Switch] records of the thread.
	Switches bool

	// Disabled opens the event stopped; [Event.Enable] starts it.
	Disabled bool
	// Do not count events in these modes.
	ExcludeUser, ExcludeKernel bool

	// Mmap2 requests [Mmap2] records of executable mappings.
	Mmap2 bool
	// Comm requests [Comm] records; CommExec marks the ones caused by execve(2).
	Comm, CommExec bool
	// Task requests [Fork] and [Exit] records.
	Task bool
	// Cgroup requests [Cgroup] records, which a kernel without the perf_event controller
	// does not send.
	Cgroup bool
	// SampleIDAll appends the time to every record, and the thread, the event's ID and the CPU if SampleType has them.
	SampleIDAll bool
	// MonotonicClock selects CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns, instead of
	// the scheduler's clock.
	MonotonicClock bool
	// Watermark is the number of bytes in the ring at which the file descriptor polls as
	// readable. 0 selects the kernel's default.
	Watermark uint32
}

// BreakpointExecute is HW_BREAKPOINT_X of linux/hw_breakpoint.h: a breakpoint that is hit before the
// instruction at its address is executed.
const BreakpointExecute = 4

// Bits of the fields cgroup and inherit_thread in struct perf_event_attr, since Linux 5.7 and 5.13.
const (
	bitCgroup        = 1 << 32
	bitInheritThread = 1 << 35
)

// raw returns a in the kernel's form.
func (a Attr) raw() *unix.PerfEventAttr {
	r := &unix.PerfEventAttr{
		Type:    a.Type,
		Size:    uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config:  a.Config,
		Ext1:    a.Config1,
		Ext2:    a.Config2,
		Bp_type: a.BreakpointType,
		Sample:  a.Period,
		// The format that Event.Read expects.
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
	}
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{a.Disabled, unix.PerfBitDisabled},
		{a.ExcludeUser, unix.PerfBitExcludeUser},
		{a.ExcludeKernel, unix.PerfBitExcludeKernel},
		// mmap requests records of executable mappings, and mmap2 selects their form.
		{a.Mmap2, unix.PerfBitMmap | unix.PerfBitMmap2},
		{a.Comm, unix.PerfBitComm},
		{a.CommExec, unix.PerfBitCommExec},
		{a.Task, unix.PerfBitTask},
		{a.Cgroup, bitCgroup},
		{a.SampleIDAll, unix.PerfBitSampleIDAll},
		{a.MonotonicClock, unix.PerfBitUseClockID},
		{a.Frequency != 0, unix.PerfBitFreq},
		{a.Watermark != 0, unix.PerfBitWatermark},
		{a.Inherit, unix.PerfBitInherit},
		{a.InheritThread, bitInheritThread},
		{a.EnableOnExec, unix.PerfBitEnableOnExec},
		{a.Switches, unix.PerfBitContextSwitch},
		{a.ExcludeKernelChain, unix.PerfBitExcludeCallchainKernel},
	} {
		if f.set {
			r.Bits |= f.bit
		}
	}
	r.Bits |= uint64(a.Precise) * unix.PerfBitPreciseIPBit1 // two bits, the lower one first
	if a.Frequency != 0 {
		r.Sample = a.Frequency
	}
	l := a.layout()
	r.Sample_type, r.Branch_sample_type, r.Sample_regs_user = l.SampleType, l.BranchType, l.UserRegs
	r.Sample_stack_user = a.UserStack
	if a.MonotonicClock {
		r.Clockid = unix.CLOCK_MONOTONIC
	}
	r.Wakeup = a.Watermark
	return r
}

// AllUserRegs is the mask of the general-purpose registers, the program counter and the stack pointer: on amd64 without
// ds, es, fs and gs, which the kernel does not sample there.
var AllUserRegs = map[string]uint64{"amd64": 0xff0fff, "arm64": 1<<33 - 1}[runtime.GOARCH]

// MaxUserStack is the largest [Attr.UserStack]. With the other fields, such a sample would exceed the largest record, so
// the kernel copies less.
const MaxUserStack = 1<<16 - 8

// layout returns the layout of the event's records.
func (a Attr) layout() Layout {
	l := Layout{SampleType: a.SampleType, BranchType: a.BranchSampleType, UserRegs: a.UserRegs, SampleIDAll: a.SampleIDAll}
	for _, field := range []struct {
		set bool
		bit uint64
	}{
		{a.SampleIDAll, unix.PERF_SAMPLE_TIME},
		{a.BranchSampleType != 0, unix.PERF_SAMPLE_BRANCH_STACK},
		{a.UserRegs != 0, unix.PERF_SAMPLE_REGS_USER},
		{a.UserStack != 0, unix.PERF_SAMPLE_STACK_USER},
	} {
		if field.set {
			l.SampleType |= field.bit
		}
	}
	return l
}
