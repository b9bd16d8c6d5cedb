package perfdata

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
)

// CallChains holds the samples of a perf.data file with their call chains.
type CallChains struct {
	// Profile has no names. The addresses of frames are file offsets, or runtime
	// addresses for the kernel. The values of each event are the number of its samples and the sum
	// of their periods, see [profile.Collector.CountEvent].
	Profile *profile.Profile
	// KernelBuildID is the build ID of the running kernel, and KernelText the address of
	// its first byte, "_text". They are empty and 0 if the file does not contain them.
	KernelBuildID string
	KernelText    uint64
	// Damage says what was left out because it was malformed, cut short or unknown.
	Damage []error
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

// ChainOptions configures [Input.CallChains].
type ChainOptions struct {
	// Each, if not nil, is called with every sample, in file order.
	Each func(ChainSample) error
	// Code returns what is known of the code of a mapped file for a machine, to unwind stacks. It is
	// called once for each file with code in a copied stack. If Code is nil, stacks end in code of files.
	Code func(Mapped, elf.Machine) unwind.Code
}

// callChains is [Input.CallChains] of an open file.
func (f *file) callChains(ctx context.Context, o ChainOptions) (*CallChains, error) {
	c := &chains{
		collection: collection{ctx: ctx, file: f, lenient: true, memory: true, procs: f.processes(func(m Mapped) *bolt.Binary { return bolt.NewMapped(m.Path, m.BuildID) })},
		each:       o.Each,
		unwinder:   newUnwinder(f.meta.Arch, o.Code),
		generated:  generated{},
		out:        profile.NewCollector(),
		sampled:    map[int]bool{},
		counts:     map[counted]uint64{},
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
	if err := c.deferrals.finish(c); err != nil {
		return nil, err
	}
	p := c.out.Profile(f.meta, profile.Losses{profile.LossRing: c.stats.Lost, profile.LossThrottled: c.stats.Throttled, profile.LossUnnamed: c.names.left})
	c.generated.mark(p)
	damage := c.damage.errors(f.name)
	if len(p.Samples) == 0 { // what was left out may be why
		return nil, errors.Join(append(damage, f.errorf(f.data.offset, "no samples"))...)
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return &CallChains{Profile: p, KernelBuildID: f.buildIDs[profile.KernelPath], KernelText: c.procs.kernelText, Damage: damage}, nil
}

// chains is a file whose call chains are read.
type chains struct {
	collection
	out       *profile.Collector
	each      func(ChainSample) error
	sampled   map[int]bool // events with samples, by index
	counts    map[counted]uint64
	deferrals deferrals
	mainEvent profile.ValueType // see main
	unwinder  *unwinder
	generated generated
	names     comms
	entries   []bolt.Entry
	frames    []profile.FrameID
}

// survey processes a record other than a sample, and notes the events of samples.
func (c *chains) survey(rec record) error {
	if rec.typ != unix.PERF_RECORD_SAMPLE {
		return c.sideband(rec)
	}
	a, ok := c.file.attrs.sample(rec.body)
	if !ok {
		return nil
	}
	c.sampled[a.index] = true
	if a.Has(unix.PERF_SAMPLE_READ) {
		if s, err := a.parseSample(rec.body); err == nil {
			for b := s.Reads; len(b) > 0; b = b[s.ReadSize:] {
				if member, ok := c.file.attrs.of(readID(b)); ok {
					c.sampled[member.index] = true
				}
			}
		}
	}
	return nil
}

// note records the names of tasks.
func (c *chains) note(rec record, f perfevent.Fields, when uint64) {
	switch rec.typ {
	case unix.PERF_RECORD_COMM:
		f.U32()
		tid := int32(f.U32())
		f.B = f.B[:min(len(f.B), maxComm)]
		c.names.add(naming{when: when, tid: tid, name: f.Text()})
	case unix.PERF_RECORD_FORK:
		f.U32()
		f.U32()
		tid, parent := int32(f.U32()), int32(f.U32())
		c.names.add(naming{when: when, tid: tid, parent: parent})
	}
}

// chain processes a sample, or the user call chain of an earlier one.
func (c *chains) chain(rec record) error {
	switch rec.typ {
	case recordCallchainDeferred:
		return c.deferredChain(rec)
	case unix.PERF_RECORD_SAMPLE:
	default:
		return nil
	}
	a, ok := c.file.attrs.sample(rec.body)
	if !ok {
		return c.omit(c.file.errorf(rec.offset, "sample of no event"))
	}
	s, err := a.parseSample(rec.body)
	if err != nil {
		return c.omit(c.file.errorf(rec.offset, "%v", err))
	}
	if !a.Has(unix.PERF_SAMPLE_TIME) {
		s.Time = c.number
	}
	t := taken{Sample: &s, event: a, misc: rec.misc, offset: rec.offset}
	if cookie, ok := t.cookie(); ok {
		return c.deferrals.wait(c, t, cookie)
	}
	return c.deliver(t)
}

// taken is a sample that is being counted.
type taken struct {
	*perfevent.Sample
	event  *attr
	misc   uint16
	offset int64 // in the file
	// deferred is the user call chain of a sample that was left for later, which missing says was not
	// found.
	deferred []byte
	missing  bool
}

// deliver counts a sample for its event. If it has counts of events instead of a period, it is a sample
// of each event whose count has grown since the last one: of all members of a group ({a,b}:S).
func (c *chains) deliver(t taken) error {
	if len(t.Reads) == 0 {
		return c.count(t)
	}
	for b := t.Reads; len(b) > 0; b = b[t.ReadSize:] {
		f := perfevent.Fields{B: b}
		value, id := f.U64(), readID(b)
		member, ok := c.file.attrs.of(id)
		if !ok {
			c.damage.unknown++
			continue
		}
		key := counted{id: id}
		if t.event.inherit {
			key.tid = int32(t.TID) // each thread has counts of its own
		}
		last, known := c.counts[key]
		if !known && len(c.counts) >= maxCounts {
			return c.file.errorf(t.offset, "groups of events of more than %d threads", maxCounts)
		}
		c.counts[key] = value
		if value == last {
			continue
		}
		t.Period = value - last
		t.event = member
		if err := c.count(t); err != nil {
			return err
		}
	}
	return nil
}

// counted identifies a count that samples contain.
type counted struct {
	id  uint64
	tid int32 // 0 if it is of all threads
}

// maxCounts bounds the number of counts to remember, about 50 bytes each.
const maxCounts = 1 << 22

// readID returns the ID of the event of a count in a sample.
func readID(b []byte) uint64 {
	f := perfevent.Fields{B: b}
	f.U64()
	return f.U64()
}

// count counts a sample of one event.
func (c *chains) count(t taken) error {
	s, a := t.Sample, t.event
	if s.Time > maxTime || s.Period > maxTime {
		return c.omit(c.file.errorf(t.offset, "sample at time %d with period %d: beyond any clock and counter", s.Time, s.Period))
	}
	comm := c.names.at(int32(s.TID), s.Time)
	at := profile.Sample{CPU: -1, Task: c.out.Task(profile.Task{PID: s.PID, Comm: comm})}
	at.Stack, at.End = c.stack(t)
	event, isTime := c.file.attrs.value(a)
	c.out.CountEvent(at, event, int64(s.Period))
	if err := c.out.Err(); err != nil {
		return c.file.errorf(t.offset, "%v", err)
	}
	if c.each == nil {
		return nil
	}
	weight := int64(unknownWeight)
	switch {
	case isTime && s.Period > 0:
		weight = int64(s.Period)
	case a.frequency > 0:
		weight = max(int64(1e9/a.frequency), 1)
	}
	return c.each(ChainSample{
		PID: s.PID, TID: s.TID, Comm: comm, Time: int64(s.Time), Stack: at.Stack, Weight: weight,
		Event: event, Amount: int64(s.Period), Main: event == c.mainEvent,
	})
}

// main returns the value of the event that tells best when tasks ran.
func (c *chains) main() (first profile.ValueType) {
	for i := range c.file.attrs.all {
		a := &c.file.attrs.all[i]
		if !c.sampled[i] {
			continue
		}
		v, isTime := c.file.attrs.value(a)
		if isTime {
			return v
		}
		first = cmp.Or(first, v)
	}
	return first
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

	contextKernel       = ^uint64(128) + 1
	contextUser         = ^uint64(512) + 1
	contextUserDeferred = ^uint64(640) + 1
	minContext          = ^uint64(4095) + 1
)

// cookie returns what identifies the record of a user call chain that was left for later: it follows a
// marker at the end of the chain.
func (t taken) cookie() (cookie uint64, ok bool) {
	const size = 16
	if len(t.Chain) < size {
		return 0, false
	}
	f := perfevent.Fields{B: t.Chain[len(t.Chain)-size:]}
	return perfevent.Fields{B: f.B[8:]}.First(), f.U64() == contextUserDeferred
}

// stack interns the stack of a sample. end is why its user part ends, if that is known.
func (c *chains) stack(t taken) (stack profile.StackID, end stackend.End) {
	s := t.Sample
	layout := c.procs.layout(int32(s.PID), s.Time)
	b := stackBuilder{chains: c, layout: layout, mode: t.misc & modeMask, first: true}
	c.frames = c.frames[:0]
	var unwound []unwind.Frame
	if t.event.Has(unix.PERF_SAMPLE_STACK_USER) && s.User.ABI != perfevent.ABINone {
		unwound, end = c.unwinder.walk(layout, s.User)
		if c.unwinder.generated {
			c.generated.add(int32(s.PID), end)
		}
	}
	branches := t.event.BranchType&unix.PERF_SAMPLE_BRANCH_CALL_STACK != 0 && len(s.Branches) > 0
	b.noUser = len(unwound) > 0 // it replaces the kernel's
	chain := perfevent.Fields{B: s.Chain}
	if _, deferred := t.cookie(); deferred {
		chain.B = chain.B[:len(chain.B)-8]
	}
	if len(chain.B) == 0 && s.HasIP {
		b.add(s.IP)
	}
	for len(chain.B) > 0 {
		ip := chain.U64()
		if ip == contextUser && branches {
			b.callers(s, t.misc)
			break
		}
		b.add(ip)
	}
	for deferred := (perfevent.Fields{B: t.deferred}); len(deferred.B) > 0; {
		b.add(deferred.U64())
	}
	if t.missing {
		end = stackend.Deferred
	}
	for _, f := range unwound {
		c.frames = append(c.frames, c.user(layout, profile.Frame{Address: f.PC, Return: !f.Exact}))
	}
	for _, f := range slices.Backward(c.frames) {
		stack = c.out.Push(stack, f)
	}
	return stack, end
}

// guestCode stands for code whose symbols are on another machine.
const guestCode = "[guest or hypervisor]"

// stackBuilder adds the addresses of call chains to the frames of a stack.
type stackBuilder struct {
	*chains
	layout bolt.Layout
	mode   uint16
	first  bool // the next address is not a return address
	noUser bool // leave out user space
}

// add adds an address, or changes the mode at a marker.
func (b *stackBuilder) add(ip uint64) {
	switch {
	case ip == contextKernel:
		b.mode, b.first = modeKernel, true
		return
	case ip == contextUser, ip == contextUserDeferred:
		b.mode, b.first = modeUser, true
		return
	case ip >= minContext:
		b.mode = 0 // a hypervisor's or guest's, which is unknown
		return
	}
	switch b.mode {
	case modeKernel:
		b.frames = append(b.frames, b.out.Frame(profile.Frame{
			Mapping: b.out.Mapping(profile.Mapping{Path: profile.KernelPath, BuildID: b.file.buildIDs[profile.KernelPath]}),
			Address: ip, Return: !b.first, Kind: profile.KindKernel,
		}))
	case modeUser:
		if !b.noUser {
			b.frames = append(b.frames, b.user(b.layout, profile.Frame{Address: ip, Return: !b.first}))
		}
	default: // one frame for all of its code
		guest := b.out.Frame(profile.Frame{Function: b.out.Function(profile.Function{Name: guestCode, SystemName: guestCode}), Kind: profile.KindMarker})
		if !slices.Contains(b.frames, guest) {
			b.frames = append(b.frames, guest)
		}
	}
	b.first = false
}

// callers adds the user stack that the branch records of a sample hold in call stack mode (--call-graph
// lbr): each is a call that has not returned.
func (b *stackBuilder) callers(s *perfevent.Sample, misc uint16) {
	if b.noUser {
		return
	}
	b.entries = bolt.AppendEntries(b.entries[:0], s.Branches)
	ip := s.IP
	if misc&modeMask != modeUser || !s.HasIP {
		// The sample is of the kernel, and nobody recorded where user space entered it: but in the
		// function of the newest call.
		ip = b.entries[0].To
	}
	b.frames = append(b.frames, b.user(b.layout, profile.Frame{Address: ip}))
	for _, e := range b.entries {
		b.frames = append(b.frames, b.user(b.layout, profile.Frame{Address: e.From}))
	}
}

// user returns the frame of user space that has the address of f in memory.
func (c *chains) user(layout bolt.Layout, f profile.Frame) profile.FrameID {
	switch region, ok := layout.Find(f.Call()); {
	case !ok:
	case isGenerated(region.Binary):
		f.Kind, f.Mapping = profile.KindJIT, c.out.Mapping(profile.Mapping{Path: profile.JITPath})
	default:
		f.Mapping = c.out.Mapping(profile.Mapping{Path: region.Binary.Name, BuildID: region.Binary.BuildID})
		f.Address = region.Address(f.Address)
	}
	return c.out.Frame(f)
}
