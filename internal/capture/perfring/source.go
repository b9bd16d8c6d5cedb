package perfring

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/looks"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes/known"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackcopy"
	"fulgur/internal/unwind/stackend"
	"fulgur/internal/unwind/unwindmap"
)

// Options configure a [Source].
type Options struct {
	// Spec is the event to sample. UserOnly leaves the kernel out of the stacks of samples in it. Frequency is in samples per second and CPU, Period in events
	// between samples. One of them is 0.
	Spec              perfevent.Spec
	Frequency, Period uint64
	UserOnly          bool
	// Target is the target: processes, threads or a command.
	Target target.Target
	// MaxDepth limits the frames of a stack; 0 means the maximum.
	MaxDepth int
	// ByThread and ByCPU keep threads and CPUs separate.
	ByThread, ByCPU bool
	// Waits also measures the waits of the threads, nil if they are not wanted; see [Source.Waits].
	Waits *WaitOptions
	// Timeline sends each sample as an event, an [oncpu.Event], instead of counting it.
	Timeline bool
	// Runtimes finds the interpreters whose frames the feed reads, nil if it reads none.
	Runtimes *known.Tracker
	// Finder finds debug files; nil means to use none. TableBytes limits the memory of unwind tables; 0 means the
	// default.
	Finder     *debugfile.Finder
	TableBytes int64
}

const (
	// stackCopy is the number of bytes of a stack to copy: 98 % or more of the stacks of python3, node and cc1plus are
	// whole with it.
	stackCopy = 16 << 10
	// maxHeld limits the samples that wait, in bytes.
	maxHeld = 64 << 20
	// patience is how long a sample waits for unwind tables, patienceAtEnd after the end of sampling, and patienceAtStart how
	// long the target waits for tables that it will need.
	patience        = 5 * time.Second
	patienceAtEnd   = 2 * time.Second
	patienceAtStart = 10 * time.Second

	defaultTableBytes = 256 << 20
)

var _ interface {
	source.Source
	source.Delayed
	source.Recordable
	process.Listener
} = (*Source)(nil)

// Source makes stacks of the samples of a [Feed], by default of perf events. It is a [source.Source], and the [process.Listener] for the processes that it samples.
type Source struct {
	options   Options
	feed      Feed
	codes     *unwindmap.Codes
	walker    *stackcopy.Walker
	processes *process.Table
	counts    *stacks.Counts

	pending []perfevent.Record // taken, but not yet in order
	queue   []sample           // in order, to be walked
	queued  uint64             // number of samples that were ever in queue
	held    int64              // bytes of the samples in queue
	lost    uint64
	ended   bool

	programs programs
	waits    *waits // nil if they are not measured
	renewed  uint64 // calls of Renew

	samples, periods, throttled uint64
	began                       uint64 // when [Source.Enable] was called, CLOCK_MONOTONIC in ns; 0 before
	endedAt                     uint64 // when [Source.End] was called, likewise
	total                       uint64 // count of the events
	double                      uint64 // sum of the periods of samples that are ignored, see rings.isDouble

	// The sample that is being walked.
	maps  []process.Mapping
	lacks bool // a table is not ready
	seed  maphash.Seed
	words []byte
	// native and merged are the words of its native frames, and of all.
	native, merged []uint64
}

// sample is a sample that waits for its walk.
type sample struct {
	Interpreted
	comm  [16]byte
	epoch uint64
	maps  []process.Mapping // nil before the first walk
	look  *seen             // nil for a sample of running code
}

// Open opens perf events on the target. It keeps no samples until [Source.Enable].
func Open(o Options) (*Source, error) {
	attr := o.Spec.Attr()
	attr.Frequency, attr.Period = o.Frequency, o.Period
	attr.SampleType = unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN
	attr.UserRegs, attr.UserStack, attr.ExcludeKernelChain = perfevent.AllUserRegs, stackCopy, o.UserOnly || o.Spec.ExcludeKernel
	attr.Mmap2, attr.Comm, attr.CommExec, attr.Task = true, true, true, true
	attr.SampleIDAll, attr.MonotonicClock, attr.Switches = true, true, o.Waits != nil
	r := &rings{options: &o, lastRead: monotonic.Now()}
	var err error
	if r.events, err = openEvents(attr, o.has, o.Target); err != nil {
		return nil, err
	}
	if o.Waits != nil {
		r.lookout = newLookout(r.events.threads)
	}
	r.start()
	return New(o, r), nil
}

// New returns a source of the samples of a feed, which it closes.
func New(o Options, feed Feed) *Source {
	s := &Source{options: o, feed: feed, counts: stacks.NewRecordedCounts(0), seed: maphash.MakeSeed(), programs: newPrograms()}
	for tid, pid := range feed.Threads() {
		s.programs.of(pid).thread(tid)
	}
	if o.Waits != nil {
		s.waits = newWaits(*o.Waits, feed.Threads())
	}
	s.codes = unwindmap.NewCodes(o.Finder, int(cmp.Or(o.TableBytes, defaultTableBytes)))
	s.walker = stackcopy.New(unwindmap.Machine, s.find)
	return s
}

// has reports whether to open the event on a CPU: only some may have it.
func (o *Options) has(cpu int) bool {
	return o.Spec.HasCPU(cpu) && (len(o.Target.CPUs) == 0 || slices.Contains(o.Target.CPUs, cpu))
}

// Prepare finds the interpreters of the target, and makes the unwind tables of files that it has mapped, or will map first. It waits for them for a limited
// time: a sample of a short program would wait in vain.
func (s *Source) Prepare(files []*process.File) {
	s.findInterpreters()
	s.codes.Prepare(files)
	ctx, cancel := context.WithTimeout(context.Background(), patienceAtStart)
	defer cancel()
	s.codes.Wait(ctx)
}

// Track sets the table of processes, which gets the records of s.
func (s *Source) Track(t *process.Table) { s.processes = t }

// FDs implements [process.Listener]. There are none: the feed reads at once, and the samples can wait.
func (s *Source) FDs() []int { return nil }

// Drain implements [process.Listener]. It keeps samples until the ring of [Source.Ring] is read.
func (s *Source) Drain(fn func(perfevent.Record)) (uint64, error) {
	until := monotonic.Now()
	fresh, lost, err := s.feed.Take()
	s.lost += lost
	s.pending = append(s.pending, fresh...)
	slices.SortStableFunc(s.pending, func(a, b perfevent.Record) int { return cmp.Compare(a.When(), b.When()) })
	n := 0
	for ; n < len(s.pending) && (s.ended || s.pending[n].When() <= until); n++ {
		switch r := s.pending[n].(type) {
		case perfevent.Sample:
			s.take(Interpreted{Sample: r})
		case Interpreted:
			s.take(r)
		case Code:
			s.addCode(r)
		case perfevent.Throttle:
			s.throttled++
		case perfevent.Switch, looks.Look, gap:
			s.applyWaits(r)
		default:
			s.apply(r)
			fn(r)
			if child, ok := r.(perfevent.Fork); ok && !s.measures(child.PID) {
				fn(perfevent.Exit(child)) // no record will tell
			}
		}
	}
	s.pending = slices.Delete(s.pending, 0, n)
	return 0, err // samples are lost more often than mappings, and s counts both
}

// apply notes what a record says about the target.
func (s *Source) apply(r perfevent.Record) {
	if pid := processOf(r); pid == 0 || s.measures(pid) {
		s.programs.apply(r, s.beganAt())
		if s.programs.running[pid] == nil {
			s.options.Runtimes.Forget(pid)
		}
		s.applyWaits(r)
	}
	if end, ok := r.(perfevent.Exit); ok {
		if of, ok := s.feed.(*rings); ok {
			of.exited(end.TID)
		}
	}
}

// take puts a sample of the target into the queue.
func (s *Source) take(r Interpreted) {
	if !s.measures(r.PID) || r.Time < s.beganAt() {
		return
	}
	if of, ok := s.feed.(*rings); ok && of.isDouble(r.Sample) {
		s.double += r.Period
		return
	}
	one := sample{Interpreted: r}
	if s.held > maxHeld {
		s.lost++
		return
	}
	s.samples++
	s.periods += r.Period
	p := s.programs.of(r.PID)
	t := p.thread(r.TID)
	t.sampled = true
	epoch := p.epoch
	if r.Time < p.since { // a late sample of the program before
		epoch = s.programs.epoch()
	}
	one.comm, one.epoch = t.name, epoch
	s.held += int64(one.Size())
	s.queue = append(s.queue, one)
	s.queued++
}

// measures reports whether a process that has events belongs to the target. Before Linux 5.13, its children inherit them.
func (s *Source) measures(pid int) bool {
	t := s.options.Target
	return t.Scope == target.Threads || t.Children || slices.Contains(t.PIDs, pid)
}

// beganAt returns when [Source.Enable] was called, CLOCK_MONOTONIC in ns, math.MaxUint64 before.
func (s *Source) beganAt() uint64 {
	if s.began > 0 {
		return s.began
	}
	return math.MaxUint64
}

// find implements the walker's search for code.
func (s *Source) find(addr uint64) (unwind.Code, uint64, bool) {
	i, found := slices.BinarySearchFunc(s.maps, addr, func(m process.Mapping, addr uint64) int { return cmp.Compare(m.Start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= s.maps[i].Limit {
		return unwind.Code{}, 0, false
	}
	code, bias, ready := s.codes.Of(&s.maps[i], addr)
	s.lacks = s.lacks || !ready
	return code, bias, true
}

// Ring implements [source.Source].
func (s *Source) Ring() ringbuf.Ring { return (*walked)(s) }

// walked is the ring of the stack records that [Source] makes of samples.
type walked Source

// FD implements [ringbuf.Ring], as [Source.FDs].
func (*walked) FD() int { return -1 }

// Position implements [ringbuf.Ring].
func (w *walked) Position() uint64 { return w.queued }

// ReadTo implements [ringbuf.Ring]. It walks the samples whose unwind tables are ready. The position does not matter: the
// queue has only samples before which all records of mappings are known.
func (w *walked) ReadTo(_ uint64, fn func(record []byte) error) error {
	s := (*Source)(w)
	s.findInterpreters()
	if err := s.walkReady(fn, uint64(patience)); err != nil || !s.ended {
		return err
	}
	// Each walk may come to another file without a table.
	for ctx, cancel := context.WithTimeout(context.Background(), patienceAtEnd); ; {
		if len(s.queue) == 0 || ctx.Err() != nil {
			cancel()
			return s.walkReady(fn, 0)
		}
		s.codes.Wait(ctx)
		if err := s.walkReady(fn, uint64(patience)); err != nil {
			cancel()
			return err
		}
	}
}

// walkReady walks the samples whose tables are ready, and those that are older than limit, in ns, or use too much memory.
func (s *Source) walkReady(fn func(record []byte) error, limit uint64) (err error) {
	now := monotonic.Now()
	// A walk may read the mappings of a process, which drains the rings and so adds samples to the queue.
	todo := s.queue
	s.queue = nil
	left := todo[:0]
	for i := range todo {
		one := &todo[i]
		done := false
		if err == nil {
			done, err = s.walk(one, s.held > maxHeld/2 || now > one.Time+limit, fn)
		}
		if !done {
			left = append(left, *one)
			continue
		}
		s.held -= int64(one.Size())
	}
	clear(todo[len(left):])
	s.queue = append(left, s.queue...)
	return err
}

// walk walks the stack of a sample, unless a table is missing that is worth waiting for. It reports whether it did.
func (s *Source) walk(one *sample, force bool, fn func(record []byte) error) (done bool, err error) {
	if one.maps == nil || force {
		one.maps = s.mappings(one)
	}
	s.maps, s.lacks = one.maps, false
	frames, end := s.walker.Walk(one.User)
	frames, end = s.walker.Continue(frames, end, one.Chain)
	switch {
	case s.lacks && !force:
		return false, nil
	case s.lacks:
		end = stackend.NotReady
	case end == stackend.Copy:
		end = stackend.BeyondCopy
	case end == stackend.Fault && one.look != nil:
		end = stackend.Register.InProfile() // /proc tells only two registers
	}
	record := bpf.StackRecord{
		Type: uint32(bpf.RecordStack), Time: one.Time, Pid: uint32(one.PID), Tid: uint32(one.TID), Comm: one.comm,
		Epoch: one.epoch, UserEnd: uint8(end),
	}
	limit := bpf.MaxDepth
	if s.options.MaxDepth > 0 {
		limit = min(limit, s.options.MaxDepth)
	}
	kernel, user := chains(one.Chain)
	if len(frames) == 0 { // 32-bit, or on its way out
		frames, end = user, stackend.FramePointer
		record.UserEnd = uint8(end)
	}
	if len(frames) > limit {
		frames, record.UserEnd = frames[:limit], uint8(stackend.Depth)
	}
	if len(kernel) > 0 {
		record.KernelEnd = uint8(stackend.FramePointer)
	}
	if len(kernel) > limit {
		kernel, record.KernelEnd = kernel[:limit], uint8(stackend.Depth)
	}
	for i, f := range kernel {
		record.Frames[i] = f.PC
	}
	s.native = s.native[:0]
	for i, f := range frames {
		s.native = append(s.native, word(f, i))
	}
	words, ends := s.merge(one, s.native, stackend.End(record.UserEnd))
	record.UserEnd = uint8(ends)
	if err := s.passCode(one, fn); err != nil {
		return true, err
	}
	n := copy(record.Frames[len(kernel):], words)
	record.KernelFrames, record.UserFrames = uint16(len(kernel)), uint16(n)
	if one.look != nil {
		one.look.walked = true
		one.look.id, err = s.passStack(&record, fn)
		return true, err
	}
	record.Id = s.hash(&record)
	weight := max(one.Period, 1)
	if !s.options.Timeline {
		record.First.Weight = weight
	}
	if s.options.ByThread {
		record.First.Tid = record.Tid
	}
	if s.options.ByCPU {
		record.First.Cpu = one.CPU
	}
	size := unsafe.Offsetof(record.Frames) + 8*uintptr(len(kernel)+n)
	if err := fn(unsafe.Slice((*byte)(unsafe.Pointer(&record)), size)); err != nil || !s.options.Timeline {
		return true, err
	}
	event := oncpu.Event{
		Type: uint32(bpf.RecordTimeline), Cpu: one.CPU, Time: one.Time, Id: record.Id, Weight: weight, Pid: record.Pid, Tid: record.Tid,
	}
	return true, fn(unsafe.Slice((*byte)(unsafe.Pointer(&event)), unsafe.Sizeof(event)))
}

// Event implements [source.Recordable].
func (s *Source) Event(record []byte, to source.Recorder) error { return oncpu.AddEvent(record, to) }

// mapsValid is how long the mappings of a process are used without a record of a change: the table may learn of others.
const mapsValid = 100 * time.Millisecond

// mappings returns the mappings of a sample's process at its time. Those of many thousands take a while to list.
func (s *Source) mappings(of *sample) []process.Mapping {
	p, now := s.programs.running[of.PID], monotonic.Now()
	if p == nil || of.Time < p.since {
		return s.processes.MappingsAt(of.PID, of.Time)
	}
	if p.maps == nil || now > p.mapped+uint64(mapsValid) {
		maps := s.processes.MappingsAt(of.PID, of.Time) // may drain records that change p
		p.maps, p.mapped = maps, now
	}
	return p.maps
}

// word returns frame i of a stack in the form of the kernel side's records, see unwind_keep in bpf/unwind_walk.h.
func word(f unwind.Frame, i int) uint64 {
	pc := f.PC &^ bpf.FrameExact
	if pc>>bpf.FrameRuntimeShift != 0 {
		pc |= bpf.FrameKinds << bpf.FrameKindShift // not the address of code, or the vsyscall page
	}
	if f.Exact && i > 0 {
		pc |= bpf.FrameExact
	}
	return pc
}

// chains returns the parts of the kernel's call chain: in the kernel, and in user space.
func chains(b []byte) (kernel, user []unwind.Frame) {
	const minMarker = math.MaxUint64 - 4095
	var in uint64 // a marker
	for ; len(b) >= 8; b = b[8:] {
		part := &user
		switch pc := binary.NativeEndian.Uint64(b); {
		case pc > minMarker:
			in = pc
			continue
		case in == contextKernel:
			part = &kernel
			fallthrough
		default:
			*part = append(*part, unwind.Frame{PC: pc, Exact: len(*part) == 0})
		}
	}
	return kernel, user
}

// contextKernel is PERF_CONTEXT_KERNEL: the kernel's addresses follow in a call chain.
const contextKernel = math.MaxUint64 - 127

// hash returns the ID of a stack.
func (s *Source) hash(r *bpf.StackRecord) uint64 {
	s.words = append(s.words[:0], r.Comm[:]...)
	for _, v := range []uint64{uint64(r.Pid), r.Epoch, uint64(r.UserEnd), uint64(r.KernelEnd), uint64(r.KernelFrames), s.renewed} {
		s.words = binary.NativeEndian.AppendUint64(s.words, v)
	}
	for _, v := range r.Frames[:int(r.KernelFrames)+int(r.UserFrames)] {
		s.words = binary.NativeEndian.AppendUint64(s.words, v)
	}
	return max(maphash.Bytes(s.seed, s.words), 1)
}

// Needed implements [source.Delayed].
func (s *Source) Needed() uint64 {
	if len(s.queue) == 0 {
		return math.MaxUint64
	}
	return s.queue[0].Time
}

// Unmeasured is what a [Source] could not see.
type Unmeasured struct {
	// CPUTime is the CPU time of the target, and Unsampled the part of it in which no sample could be taken, since it was in
	// the kernel, if UserCode is set, or of one of the Brief threads that ended without a sample. Lost samples count as taken, with the mean
	// period. Both are 0 for other events than clocks, before [Source.Detach], and if the counters have the time of others, too.
	CPUTime, Unsampled time.Duration
	Brief              uint64
	UserCode           bool
	// Departures are the first processes whose samples ended before they did, and Departed is the number of all.
	Departures []Departure
	Departed   uint64
	// Refused are the children that could not be sampled at all, in ascending order.
	Refused []int
	// Without is the number of threads that could not be sampled since each takes an event for each CPU, and no more than
	// Limit events may be open. The target had Threads threads.
	Without, Threads, Limit int
}

// Unmeasured returns what s could not see so far.
func (s *Source) Unmeasured() Unmeasured {
	u := Unmeasured{
		UserCode: s.options.Spec.ExcludeKernel,
		Brief:    s.programs.unseen, Departures: slices.Clone(s.programs.departures), Departed: s.programs.departed,
	}
	if of, ok := s.feed.(*rings); ok {
		e := of.events
		u.Refused, u.Without, u.Threads, u.Limit = slices.Sorted(maps.Keys(e.refused)), e.without, e.found, e.limit
	}
	for i := range u.Departures {
		d, began := &u.Departures[i], s.beganAt()
		d.After = time.Duration(max(d.at, began) - began)
	}
	if s.options.Spec.IsTime() && s.ended && s.total > 0 {
		total := s.total - min(s.total, s.double)
		taken := s.periods + s.lost*(s.periods/max(s.samples, 1))
		u.CPUTime, u.Unsampled = time.Duration(total), time.Duration(total-min(total, taken))
	}
	return u
}

// Attach implements [source.Source]: [Open] has attached it.
func (s *Source) Attach(target.Target) error { return nil }

// Enable implements [source.Source].
func (s *Source) Enable() error {
	err := s.feed.Enable()
	s.began = monotonic.Now()
	return err
}

// Begin implements [source.Source].
func (s *Source) Begin() error { return nil }

// End implements [source.Source].
func (s *Source) End() error {
	s.endedAt = monotonic.Now()
	return nil
}

// Detach implements [source.Source].
func (s *Source) Detach() error {
	if err := s.feed.Disable(); err != nil {
		return err
	}
	s.ended = true
	s.total = s.feed.Total()
	return nil
}

// Settle implements [source.Source].
func (s *Source) Settle() {}

// Check implements [source.Source].
func (s *Source) Check() error { return nil }

// FollowCPUs implements [source.Source].
func (s *Source) FollowCPUs(online []int) error { return s.feed.FollowCPUs(online) }

// Remap implements [source.Source].
func (s *Source) Remap(pid int) error {
	if p := s.programs.running[pid]; p != nil {
		p.epoch = s.programs.epoch()
	}
	return nil
}

// Renew implements [source.Source].
func (s *Source) Renew() error {
	s.renewed++
	return nil
}

// Targets implements [source.Source].
func (s *Source) Targets() ([]int, error) {
	return slices.DeleteFunc(s.programs.pids(), func(pid int) bool { return !s.measures(pid) }), nil
}

// Counts implements [source.Source].
func (s *Source) Counts() *stacks.Counts { return s.counts }

// Stats implements [source.Source].
func (s *Source) Stats() (probe.Stats, error) {
	stats := probe.Stats{Samples: s.samples + s.lost}
	stats.Losses[profile.LossRing] = s.lost
	stats.Losses[profile.LossThrottled] = s.throttled
	made := s.codes.Stats()
	stats.Losses[profile.LossUnwindFiles] = uint64(made.Files)
	stats.Losses[profile.LossUnwindMemory] = uint64(made.NoRoom)
	return stats, nil
}

// MapMemory implements [source.Source].
func (s *Source) MapMemory() uint64 { return 0 }

// Close implements [source.Source] and [process.Listener].
func (s *Source) Close() error { return errors.Join(s.feed.Close(), s.codes.Close()) }
