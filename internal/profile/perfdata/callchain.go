package perfdata

import (
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
	"fulgur/internal/unwind"
)

// CallChains holds the samples of a perf.data file with their call chains.
type CallChains struct {
	// Profile has no names. The addresses of frames are file offsets, or runtime
	// addresses for the kernel. Its first value counts samples; each event adds another,
	// the sum of its periods.
	Profile *profile.Profile
	// KernelBuildID is the build ID of the running kernel, and KernelText the address of
	// its first byte, "_text". They are empty and 0 if the file does not contain them.
	KernelBuildID string
	KernelText    uint64
	// Damage says what was left out because it was malformed or cut short, nil if nothing was.
	Damage error
}

// ChainSample is a sample of a running task.
type ChainSample struct {
	PID, TID int
	// Comm is the thread's name at the time.
	Comm string
	// Time is in nanoseconds on perf's clock, by default the kernel's scheduler clock,
	// which is close to CLOCK_MONOTONIC.
	Time int64
	// Stack is a stack of the profile.
	Stack profile.StackID
	// Weight is the time in nanoseconds that the sample represents.
	Weight int64
	// Event is the value of the profile that counts the event, and Amount the sample's part
	// of it, 0 if it is unknown. Main is set for the event that tells best when tasks ran: of
	// the events with samples, the first one that is time, or else the first one.
	Event  profile.ValueType
	Amount int64
	Main   bool
}

// ChainOptions configures [ReadCallChains].
type ChainOptions struct {
	// Each, if not nil, is called with every sample, in file order.
	Each func(ChainSample) error
	// Table returns the table for unwinding the code of a mapped file for a machine, or nil
	// if there is none. It is called once for each file with code in a copied stack. If Table
	// is nil, no file has a table.
	Table func(Mapped, elf.Machine) *unwind.Table
}

// ReadCallChains reads the samples of a perf.data file of size bytes until ctx is done.
// Errors contain name. The profile is not by thread. Malformed records are left out, and so is
// the end of a file that is cut short; it is an error if no samples are left.
//
// It unwinds the copies of user stacks that perf record --call-graph dwarf takes. Their
// samples say why the stack ends. Other samples do not.
func ReadCallChains(ctx context.Context, r io.ReaderAt, size int64, name string, o ChainOptions) (*CallChains, error) {
	f, err := openFile(r, size, name)
	if err != nil {
		return nil, err
	}
	c := &chains{
		collection: collection{ctx: ctx, file: f, lenient: true, vdso: true, procs: newProcesses(func(m Mapped) *bolt.Binary { return bolt.NewMapped(m.Path, m.BuildID) })},
		each:       o.Each,
		unwinder:   newUnwinder(f.meta.Arch, o.Table),
		out:        profile.NewCollector(profile.ValueType{Type: "samples", Unit: "count"}),
		sampled:    map[attr]bool{},
	}
	c.watch = c.note
	c.damage.ended = f.cut
	if f.lacks != nil {
		c.damage.records, c.damage.first = 1, f.lacks
	}
	// As for branches, all mappings must be known before the first sample is read.
	if err := c.pass(c.survey); err != nil {
		return nil, err
	}
	if err := c.procs.finish(); err != nil {
		return nil, f.errorf(f.data.offset, "%v", err)
	}
	c.mainEvent = c.main()
	c.names.finish()
	if err := c.pass(c.chain); err != nil {
		return nil, err
	}
	p := c.out.Profile(f.meta, profile.Losses{profile.LossSamples: c.stats.Lost, profile.LossUnnamed: c.names.left})
	damage := c.damage.err()
	if len(p.Samples) == 0 && damage != nil {
		return nil, damage
	}
	if len(p.Samples) == 0 {
		return nil, f.errorf(f.data.offset, "no samples")
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &CallChains{Profile: p, KernelBuildID: f.buildIDs[profile.KernelPath], KernelText: c.procs.kernelText, Damage: damage}, nil
}

// chains is a file whose call chains are read.
type chains struct {
	collection
	out       *profile.Collector
	each      func(ChainSample) error
	sampled   map[attr]bool     // events with samples
	mainEvent profile.ValueType // see main
	unwinder  *unwinder
	names     comms
	addresses []uint64
	frames    []profile.FrameID
}

// survey processes a record other than a sample, and notes the events of samples.
func (c *chains) survey(rec record) error {
	if rec.typ != unix.PERF_RECORD_SAMPLE {
		return c.sideband(rec)
	}
	if a, ok := c.file.attrs.sample(rec.body); ok {
		c.sampled[a] = true
	}
	return nil
}

// note records the names of tasks.
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
	}
}

// chain processes a sample.
func (c *chains) chain(rec record) error {
	if rec.typ != unix.PERF_RECORD_SAMPLE {
		return nil
	}
	a, ok := c.file.attrs.sample(rec.body)
	if !ok {
		return c.omit(c.file.errorf(rec.offset, "sample of no event"))
	}
	s, problem := parseChain(a, rec.body, c.addresses[:0])
	if problem != "" {
		return c.omit(c.file.errorf(rec.offset, "%s", problem))
	}
	c.addresses = s.chain[:0]
	if s.time > maxTime || s.period > maxTime {
		return c.omit(c.file.errorf(rec.offset, "sample at time %d that stands for %d events: no clock and no counter goes as far", s.time, s.period))
	}
	if a.sampleType&unix.PERF_SAMPLE_TIME == 0 {
		s.time = c.number
	}
	comm := c.names.at(s.tid, s.time)
	at := profile.Sample{CPU: -1, Task: c.out.Task(profile.Task{PID: int(s.pid), Comm: comm})}
	at.Stack, at.End = c.stack(s, rec.misc)
	c.out.Count(at, 0, 1)
	event, isTime := a.value()
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
		Event: event, Amount: int64(s.period), Main: event == c.mainEvent,
	})
}

// main returns the value of the event that tells best when tasks ran.
func (c *chains) main() (first profile.ValueType) {
	for _, a := range c.file.attrs.all {
		if !c.sampled[a] {
			continue
		}
		v, isTime := a.value()
		if isTime {
			return v
		}
		first = cmp.Or(first, v)
	}
	return first
}

// value returns the value that samples of an event add up to, and whether it is time.
func (a attr) value() (v profile.ValueType, isTime bool) {
	config := a.config
	if a.typ == unix.PERF_TYPE_HARDWARE || a.typ == unix.PERF_TYPE_HW_CACHE {
		config &= math.MaxUint32 // the rest is the PMU's type, for a kind of cores
	}
	v = profile.ValueType{Type: perfevent.Name(a.typ, config), Unit: "count"}
	if isTime = (perfevent.Spec{Type: a.typ, Config: a.config}).IsTime(); isTime {
		v.Unit = "nanoseconds"
	}
	return v, isTime
}

// maxTime is the largest accepted time and number of events: about 146 years in
// nanoseconds.
const maxTime = 1 << 62

// unknownWeight is the weight of a sample if unknown: a millisecond.
const unknownWeight = 1e6

// CPU modes in a record's misc field, and the markers of modes in call chains.
const (
	modeMask   = 7
	modeKernel = 1
	modeUser   = 2

	contextKernel = ^uint64(128) + 1
	contextUser   = ^uint64(512) + 1
	minContext    = ^uint64(4095) + 1
)

// stack interns the stack of a sample. end is why the copy of the user stack ends, if there
// is one.
func (c *chains) stack(s chainSample, misc uint16) (stack profile.StackID, end profile.End) {
	layout := c.procs.layout(s.pid, s.time)
	mode, first := misc&modeMask, true
	c.frames = c.frames[:0]
	var unwound []unwind.Frame
	if s.user.abi != abiNone {
		unwound, end = c.unwinder.walk(layout, s.user)
	}
	for _, ip := range s.chain {
		switch {
		case ip == contextKernel:
			mode, first = modeKernel, true
			continue
		case ip == contextUser:
			mode, first = modeUser, true
			continue
		case ip >= minContext:
			mode = 0 // a hypervisor's or guest's, which is unknown
			continue
		}
		switch mode {
		case modeKernel:
			c.frames = append(c.frames, c.out.Frame(profile.Frame{
				Mapping: c.out.Mapping(profile.Mapping{Path: profile.KernelPath, BuildID: c.file.buildIDs[profile.KernelPath]}),
				Address: ip, Return: !first, Kind: profile.KindKernel,
			}))
		case modeUser:
			if len(unwound) > 0 {
				continue // it replaces the kernel's
			}
			c.frames = append(c.frames, c.user(layout, profile.Frame{Address: ip, Return: !first}))
		}
		first = false
	}
	for _, f := range unwound {
		c.frames = append(c.frames, c.user(layout, profile.Frame{Address: f.PC, Return: !f.Exact}))
	}
	for _, f := range slices.Backward(c.frames) {
		stack = c.out.Push(stack, f)
	}
	return stack, end
}

// user returns the frame of user space that has the address of f in memory.
func (c *chains) user(layout bolt.Layout, f profile.Frame) profile.FrameID {
	if region, ok := layout.Find(f.Call()); ok {
		f.Mapping = c.out.Mapping(profile.Mapping{Path: region.Binary.Name, BuildID: region.Binary.BuildID})
		f.Address = region.Address(f.Address)
	}
	return c.out.Frame(f)
}

// chainSample is the part of a PERF_RECORD_SAMPLE that is relevant to its call chain.
type chainSample struct {
	pid, tid     int32
	time, period uint64
	chain        []uint64 // innermost first, with mode markers
	user         userState
}

// maxChain is the longest accepted call chain. The kernel's limit, a sysctl, is 127 by
// default.
const maxChain = 1 << 14

// parseChain parses the body of a sample of event a. The chain is stored in chain.
// problem describes an error, or is "".
func parseChain(a attr, body []byte, chain []uint64) (s chainSample, problem string) {
	f := fields{b: body}
	t := a.sampleType
	has := func(bit uint64) bool { return t&bit != 0 }
	skip := func(mask uint64) { f.take(uint64(8 * bits.OnesCount64(t&mask))) }
	// The fields are in the order of perf_output_sample in the kernel.
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
	if has(unix.PERF_SAMPLE_REGS_USER) && has(unix.PERF_SAMPLE_STACK_USER) {
		if problem = skipBranches(&f, a); problem != "" {
			return s, problem
		}
		s.user = parseUser(&f, a)
	}
	if f.short {
		return s, "sample cut short"
	}
	return s, ""
}
