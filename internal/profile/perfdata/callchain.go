package perfdata

import (
	"context"
	"io"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// CallChains are the samples of a perf.data file with their call chains.
type CallChains struct {
	// Profile has no names: the addresses of frames in files are offsets
	// there, those of the kernel the running ones. Its first value counts
	// samples; each event has another, the sum of periods.
	Profile *profile.Profile
	// KernelBuildID is the build ID of the kernel that ran, KernelText the
	// address of its first byte, "_text"; empty and 0 if the file does not tell.
	KernelBuildID string
	KernelText    uint64
	// Lost is the number of records that the kernel could not deliver.
	Lost uint64
}

// ChainSample is a sample of a task that ran.
type ChainSample struct {
	PID, TID int
	// Comm is the thread's name then.
	Comm string
	// Time is in nanoseconds of the clock that perf used, by default the
	// kernel's own, which is near CLOCK_MONOTONIC.
	Time int64
	// Stack is one of the profile's.
	Stack profile.StackID
	// Weight is the time in nanoseconds that the sample stands for.
	Weight int64
}

// kernelPath is what perf and fulgur call the kernel's code.
const kernelPath = "[kernel.kallsyms]"

// ReadCallChains reads the samples of a perf.data file of size bytes until ctx
// ends. Errors mention name. The profile does not tell threads apart. If each is not nil,
// it is called with every sample, in the order of the file.
func ReadCallChains(ctx context.Context, r io.ReaderAt, size int64, name string, each func(ChainSample) error) (*CallChains, error) {
	f, err := openFile(r, size, name)
	if err != nil {
		return nil, err
	}
	c := &chains{
		collection: collection{ctx: ctx, file: f, procs: newProcesses(func(m Mapped) *bolt.Binary { return bolt.NewMapped(m.Path, m.BuildID) })},
		each:       each,
		out:        profile.NewCollector(profile.ValueType{Type: "samples", Unit: "count"}),
	}
	c.watch = c.note
	// As for branches, all mappings are known before the first sample is read.
	if err := c.pass(c.sideband); err != nil {
		return nil, err
	}
	if err := c.procs.finish(); err != nil {
		return nil, f.errorf(f.data.offset, "%v", err)
	}
	c.names.finish()
	if err := c.pass(c.chain); err != nil {
		return nil, err
	}
	p := c.out.Profile(f.meta, profile.Losses{Samples: c.stats.Lost, Unnamed: c.names.left})
	if len(p.Samples) == 0 {
		return nil, f.errorf(f.data.offset, "no samples")
	}
	return &CallChains{Profile: p, KernelBuildID: f.buildIDs[kernelPath], KernelText: c.kernelText, Lost: c.stats.Lost}, nil
}

// chains is a file whose call chains are read.
type chains struct {
	collection
	out        *profile.Collector
	each       func(ChainSample) error
	names      comms
	kernelText uint64
	addresses  []uint64
	frames     []profile.FrameID
}

// note takes names of tasks, and where the kernel is, from records.
func (c *chains) note(rec record, f fields, when uint64) {
	switch rec.typ {
	case unix.PERF_RECORD_COMM:
		f.u32()
		tid := int32(f.u32())
		f.b = f.b[:min(len(f.b), maxComm)]
		c.names.add(naming{when: when, tid: tid, name: f.cstring()})
	case unix.PERF_RECORD_FORK:
		f.u32()
		f.u32()
		tid, parent := int32(f.u32()), int32(f.u32())
		c.names.add(naming{when: when, tid: tid, parent: parent})
	case unix.PERF_RECORD_MMAP:
		pid := int32(f.u32())
		f.u32()
		start := f.u64()
		f.take(16)
		if pid == -1 && strings.HasPrefix(f.cstring(), kernelPath) {
			c.kernelText = start
		}
	}
}

// chain reads a sample.
func (c *chains) chain(rec record) error {
	if rec.typ != unix.PERF_RECORD_SAMPLE {
		return nil
	}
	a, ok := c.file.attrs.sample(rec.body)
	if !ok {
		return c.file.errorf(rec.offset, "sample of no event")
	}
	if a.sampleType&unix.PERF_SAMPLE_STACK_USER != 0 {
		return c.file.errorf(rec.offset, "recorded with --call-graph dwarf, which leaves the stacks' bytes for perf to unwind: send it through perf script")
	}
	s, problem := parseChain(a, rec.body, c.addresses[:0])
	if problem != "" {
		return c.file.errorf(rec.offset, "%s", problem)
	}
	c.addresses = s.chain[:0]
	if s.time > maxTime || s.period > maxTime {
		return c.file.errorf(rec.offset, "sample at time %d that stands for %d events: no clock and no counter goes as far", s.time, s.period)
	}
	if a.sampleType&unix.PERF_SAMPLE_TIME == 0 {
		s.time = c.number
	}
	comm := c.names.at(s.tid, s.time)
	at := profile.Sample{
		Stack: c.stack(s, rec.misc), CPU: -1,
		Task: c.out.Task(profile.Task{PID: int(s.pid), Comm: comm}),
	}
	c.out.Count(at, 0, 1)
	event := profile.ValueType{Type: perfevent.Name(a.typ, a.config), Unit: "count"}
	isTime := (perfevent.Spec{Type: a.typ, Config: a.config}).IsTime()
	if isTime {
		event.Unit = "nanoseconds"
	}
	if s.period > 0 {
		c.out.Count(at, c.out.Value(event), int64(s.period))
	}
	if err := c.out.Err(); err != nil {
		return c.file.errorf(rec.offset, "%v", err)
	}
	if c.each == nil {
		return nil
	}
	weight := int64(unknownWeight)
	switch {
	case isTime && s.period > 0:
		weight = int64(s.period)
	case a.frequency > 0:
		weight = max(int64(1e9/a.frequency), 1)
	}
	return c.each(ChainSample{
		PID: int(s.pid), TID: int(s.tid), Comm: comm, Time: int64(s.time), Stack: at.Stack, Weight: weight,
	})
}

// maxTime is the largest time and the largest number of events that are believed:
// as nanoseconds, some 146 years.
const maxTime = 1 << 62

// unknownWeight is the time that a sample stands for where nothing tells it, a
// millisecond.
const unknownWeight = 1e6

// Modes of the CPU in a record's misc, and the marks in call chains that what
// follows is of one.
const (
	modeMask   = 7
	modeKernel = 1
	modeUser   = 2

	contextKernel = ^uint64(128) + 1
	contextUser   = ^uint64(512) + 1
	leastContext  = ^uint64(4095) + 1
)

// stack interns the stack of a sample.
func (c *chains) stack(s chainSample, misc uint16) (stack profile.StackID) {
	layout := c.procs.layout(s.pid, s.time)
	mode, first := misc&modeMask, true
	c.frames = c.frames[:0]
	for _, ip := range s.chain {
		switch {
		case ip == contextKernel:
			mode, first = modeKernel, true
			continue
		case ip == contextUser:
			mode, first = modeUser, true
			continue
		case ip >= leastContext:
			mode = 0 // a hypervisor's or guest's, of which nothing is known
			continue
		}
		switch mode {
		case modeKernel:
			c.frames = append(c.frames, c.out.Frame(profile.Frame{
				Mapping: c.out.Mapping(profile.Mapping{Path: kernelPath, BuildID: c.file.buildIDs[kernelPath]}),
				Address: ip, Return: !first, Kind: profile.KindKernel,
			}))
		case modeUser:
			c.frames = append(c.frames, c.user(layout, profile.Frame{Address: ip, Return: !first}))
		}
		first = false
	}
	for i := len(c.frames) - 1; i >= 0; i-- {
		stack = c.out.Push(stack, c.frames[i])
	}
	return stack
}

// user returns the frame of user space that has the address of f in memory.
func (c *chains) user(layout bolt.Layout, f profile.Frame) profile.FrameID {
	if region, ok := layout.Find(f.Call()); ok {
		f.Mapping = c.out.Mapping(profile.Mapping{Path: region.Binary.Name, BuildID: region.Binary.BuildID})
		f.Address = region.Address(f.Address)
	}
	return c.out.Frame(f)
}

// chainSample is what matters of a PERF_RECORD_SAMPLE for its call chain.
type chainSample struct {
	pid, tid     int32
	time, period uint64
	chain        []uint64 // the innermost first, with marks of the mode
}

// maxChain is the longest call chain that is believed; the kernel's limit, a
// sysctl, is 127 unless raised.
const maxChain = 1 << 14

// parseChain reads the body of a sample of event a. The chain is kept in chain.
// It reports what is wrong, "" if nothing is.
func parseChain(a attr, body []byte, chain []uint64) (s chainSample, problem string) {
	f := fields{b: body}
	t := a.sampleType
	has := func(bit uint64) bool { return t&bit != 0 }
	skip := func(mask uint64) { f.take(uint64(8 * bits.OnesCount64(t&mask))) }
	// The order of fields is that of perf_output_sample in the kernel.
	skip(unix.PERF_SAMPLE_IDENTIFIER)
	var ip uint64
	if has(unix.PERF_SAMPLE_IP) {
		ip = f.u64()
	}
	if has(unix.PERF_SAMPLE_TID) {
		s.pid, s.tid = int32(f.u32()), int32(f.u32())
	}
	if has(unix.PERF_SAMPLE_TIME) {
		s.time = f.u64()
	}
	skip(unix.PERF_SAMPLE_ADDR | unix.PERF_SAMPLE_ID | unix.PERF_SAMPLE_STREAM_ID | unix.PERF_SAMPLE_CPU)
	s.period = a.period
	if has(unix.PERF_SAMPLE_PERIOD) {
		s.period = f.u64()
	}
	if has(unix.PERF_SAMPLE_READ) {
		skipRead(&f, a.readFormat)
	}
	s.chain = chain
	if has(unix.PERF_SAMPLE_CALLCHAIN) {
		n := f.u64()
		if n > maxChain {
			return s, "sample with a call chain that no kernel takes"
		}
		for range n {
			s.chain = append(s.chain, f.u64())
		}
	}
	if len(s.chain) == 0 && has(unix.PERF_SAMPLE_IP) {
		s.chain = append(s.chain, ip)
	}
	if f.short {
		return s, "sample cut short"
	}
	return s, ""
}
