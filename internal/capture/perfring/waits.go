package perfring

import (
	"errors"
	"maps"
	"slices"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/looks"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/linux/syscalls"
	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// WaitOptions select the waits to measure.
type WaitOptions struct {
	// Index is the index of their source in the run.
	Index uint8
	// Alone means that nothing else is measured.
	Alone bool
	// Shortest and Longest limit the waits that count; a Longest of 0 means no limit.
	Shortest, Longest time.Duration
	// FromStart means that the threads at the start have not begun to run.
	FromStart bool
}

// gap is a time in which switches were lost, from its stamp to until.
type gap struct {
	perfevent.Stamp
	until uint64
}

// turn is what is known of a thread's turn on a CPU.
type turn uint8

const (
	turnUnknown turn = iota // no record has told since records were lost
	turnAtStart             // no record has told yet
	turnRuns
	turnOff
)

// waits pairs the switches of threads, in order of time, with looks at them.
type waits struct {
	options WaitOptions
	threads map[int]*switching // by TID
	// blind is the end of the last [gap].
	blind uint64
	// ended are waits that are over, in order of their ends, whose records are not yet made.
	ended []wait
	// words are the functions of the kernel in the records of stacks, functions plus 1, and names their names.
	words map[string]uint64
	names []string
	// sent are the IDs of the stacks whose records were passed on.
	sent   map[uint64]bool
	counts *stacks.Counts
	stats  WaitStats
	missed uint64
	done   bool // the waits in progress at the end have ended
}

// switching is a thread that switches between running and waiting.
type switching struct {
	pid   int
	turn  turn
	since uint64 // of turnOff
	// preempted is set if it could have run on.
	preempted bool
	look      *seen // nil if none has found it in this wait
}

// seen is a look at a wait. Its stack has the given ID once it is walked.
type seen struct {
	looks.Look
	id     uint64
	walked bool
}

// wait is a wait of a thread.
type wait struct {
	pid, tid   int
	begin, end uint64 // CLOCK_MONOTONIC in ns
	comm       [16]byte
	epoch      uint64
	preempted  bool
	look       *seen
}

// WaitStats sums up waits and their times, for messages.
type WaitStats struct {
	Waits uint64
	// Time is that of all waits. Preempted of it waited for a CPU after losing it, TooShort had no look, and in Forbidden the
	// stack was not readable.
	Time, Preempted, TooShort, Forbidden time.Duration
}

func newWaits(o WaitOptions, threads map[int]int) *waits {
	w := &waits{options: o, threads: map[int]*switching{}, words: map[string]uint64{}, sent: map[uint64]bool{}, counts: stacks.NewRecordedCounts(o.Index)}
	for tid, pid := range threads {
		t := &switching{pid: pid, turn: turnAtStart}
		if o.FromStart {
			t.turn = turnRuns
		}
		w.threads[tid] = t
	}
	return w
}

// applyWaits handles a record about a thread of the target for waits.
func (s *Source) applyWaits(r perfevent.Record) {
	w := s.waits
	if w == nil {
		return
	}
	switch r := r.(type) {
	case perfevent.Fork:
		if s.measures(r.PID) {
			w.threads[r.TID] = &switching{pid: r.PID, turn: turnRuns}
		}
	case perfevent.Exit:
		delete(w.threads, r.TID)
	case perfevent.Switch:
		if r.TID > 0 && s.measures(r.PID) {
			s.switched(r)
		}
	case looks.Look:
		s.looked(r)
	case gap:
		w.blind = max(w.blind, r.until)
		for _, t := range w.threads {
			if t.turn == turnOff {
				w.missed++
			}
			t.turn, t.look = turnUnknown, nil
		}
	}
}

// switched handles a switch.
func (s *Source) switched(r perfevent.Switch) {
	w := s.waits
	t := w.threads[r.TID]
	if t == nil {
		t = &switching{pid: r.PID}
		w.threads[r.TID] = t
	}
	switch {
	case r.Time <= w.blind:
		t.turn = turnUnknown
	case r.Out && t.turn != turnOff: // otherwise the record of a second event
		t.turn, t.since, t.preempted, t.look = turnOff, r.Time, r.Preempted, nil
	case !r.Out:
		if t.turn == turnOff || t.turn == turnAtStart {
			s.endWait(r.TID, t, r.Time)
		}
		t.turn, t.look = turnRuns, nil
	}
}

// looked handles a look. It is true of a wait if the thread did not run from its beginning to its end.
func (s *Source) looked(r looks.Look) {
	t := s.waits.threads[r.TID]
	if t == nil || t.pid != r.PID || t.look != nil {
		return
	}
	if off := t.turn == turnOff && !t.preempted && t.since <= r.From; !off && t.turn != turnAtStart {
		return
	}
	t.look = &seen{Look: r}
	if r.Forbidden {
		t.look.walked = true
		return
	}
	p := s.programs.of(r.PID)
	one := sample{look: t.look, comm: p.thread(r.TID).name, epoch: p.epoch}
	one.Time, one.PID, one.TID, one.User = r.Time, r.PID, r.TID, r.User
	t.look.User = perfevent.UserState{} // the sample has it
	s.held += int64(one.Size())
	s.queue = append(s.queue, one)
	s.queued++
}

// endWait ends a wait at a time, and keeps the part of it that is in the measurement.
func (s *Source) endWait(tid int, t *switching, at uint64) {
	w, began := s.waits, s.beganAt()
	begin := max(t.since, began)
	if s.endedAt > 0 {
		at = min(at, s.endedAt)
	}
	if began > at || begin >= at {
		return
	}
	length := time.Duration(at - begin)
	if o := w.options; length < o.Shortest || o.Longest > 0 && length > o.Longest {
		return
	}
	one := wait{pid: t.pid, tid: tid, begin: begin, end: at, preempted: t.turn == turnOff && t.preempted, look: t.look}
	p := s.programs.of(t.pid)
	one.comm, one.epoch = p.thread(tid).name, p.epoch
	w.ended = append(w.ended, one)
	w.stats.Waits++
	w.stats.Time += length
	switch {
	case one.preempted:
		w.stats.Preempted += length
	case one.look == nil:
		w.stats.TooShort += length
	case one.look.Forbidden:
		w.stats.Forbidden += length
	}
}

// finishWaits ends the waits that are in progress at the end of the measurement.
func (s *Source) finishWaits() {
	w := s.waits
	if w.done || s.endedAt == 0 {
		return
	}
	w.done = true
	for _, tid := range slices.Sorted(maps.Keys(w.threads)) {
		t := w.threads[tid]
		if t.turn == turnOff || t.turn == turnAtStart && (t.look != nil || waitsNow(t.pid, tid)) {
			s.endWait(tid, t, s.endedAt)
		}
	}
}

// WaitStats returns what is known of the waits so far.
func (s *Source) WaitStats() WaitStats {
	if s.waits == nil {
		return WaitStats{}
	}
	return s.waits.stats
}

// waitsNow reports whether a thread waits. One that never switched then did so all the time.
func waitsNow(pid, tid int) bool {
	stat, err := procfs.Thread(pid, tid).Stat()
	return err == nil && stat.State != 'R' && !stat.Exited()
}

// passWaits passes on the waits that are over and whose stacks are known, with the records of these.
func (s *Source) passWaits(fn func(record []byte) error) error {
	w := s.waits
	if s.ended && len(s.pending) == 0 {
		s.finishWaits()
	}
	left := w.ended[:0]
	for i := range w.ended {
		one := &w.ended[i]
		if one.look != nil && !one.look.walked {
			left = append(left, *one)
			continue
		}
		if err := s.passWait(one, fn); err != nil {
			return err
		}
	}
	clear(w.ended[len(left):])
	w.ended = left
	return nil
}

// maxSent limits the stacks that are known to be passed on. Beyond, all are passed on again.
const maxSent = 1 << 16

// passWait passes on a wait.
func (s *Source) passWait(one *wait, fn func(record []byte) error) (err error) {
	w := s.waits
	event := offcpu.Event{
		Type: uint32(bpf.RecordTimeline), State: uint16(bpf.OffCPUStateClassSTATE_SLEEPING), Time: one.begin, Duration: one.end - one.begin,
		Pid: uint32(one.pid), Tid: uint32(one.tid),
	}
	half := &bpf.StackRecord{
		Type: uint32(bpf.RecordStack), Time: one.begin, Pid: event.Pid, Tid: event.Tid, Comm: one.comm, Epoch: one.epoch, UserEnd: uint8(stackend.TooShort),
	}
	switch {
	case one.preempted:
		event.State, event.Waiting = uint16(bpf.OffCPUStateClassSTATE_RUNNABLE), event.Duration
		half.UserEnd = uint8(stackend.None)
	case one.look != nil:
		event.State, event.Id = uint16(classes[one.look.State]), one.look.id
		half.UserEnd = uint8(stackend.Forbidden)
		if event.Kernel, err = s.passKernel(&one.look.Look, fn); err != nil {
			return err
		}
	}
	if event.Id == 0 {
		if event.Id, err = s.passStack(half, fn); err != nil {
			return err
		}
	}
	if s.options.Timeline {
		return fn(unsafe.Slice((*byte)(unsafe.Pointer(&event)), offcpu.EventSize))
	}
	key, values := offcpu.Counted(&event)
	key.Source = w.options.Index
	if s.options.ByThread {
		key.TID = event.Tid
	}
	w.counts.Add(key, values)
	return nil
}

// classes are the classes of the states of threads that wait, see bpf/wait.h.
var classes = map[byte]bpf.OffCPUStateClass{
	'S': bpf.OffCPUStateClassSTATE_SLEEPING, 'D': bpf.OffCPUStateClassSTATE_DISK_SLEEP, 'T': bpf.OffCPUStateClassSTATE_STOPPED,
	't': bpf.OffCPUStateClassSTATE_TRACED, 'P': bpf.OffCPUStateClassSTATE_PARKED, 'I': bpf.OffCPUStateClassSTATE_IDLE,
}

// passKernel passes on the kernel's half of a stack, if it is known: the function in which the thread waits, and that of the
// system call. It returns its ID, 0 if it is not known.
func (s *Source) passKernel(l *looks.Look, fn func(record []byte) error) (uint64, error) {
	half := &bpf.StackRecord{Type: uint32(bpf.RecordStack), Time: l.Time, KernelEnd: uint8(stackend.FramePointer)}
	for _, name := range []string{l.Function, syscalls.Function(l.Call)} {
		if name == "" {
			continue
		}
		half.Frames[half.KernelFrames] = s.waits.word(name)
		half.KernelFrames++
	}
	if half.KernelFrames == 0 {
		return 0, nil
	}
	return s.passStack(half, fn)
}

// passStack passes on a stack unless it was passed on before, and returns its ID.
func (s *Source) passStack(record *bpf.StackRecord, fn func(record []byte) error) (uint64, error) {
	w := s.waits
	record.Id = s.hash(record)
	if w.sent[record.Id] {
		return record.Id, nil
	}
	if len(w.sent) >= maxSent {
		clear(w.sent)
	}
	w.sent[record.Id] = true
	size := unsafe.Offsetof(record.Frames) + 8*uintptr(record.KernelFrames+record.UserFrames)
	return record.Id, fn(unsafe.Slice((*byte)(unsafe.Pointer(record)), size))
}

// word returns what stands for a function of the kernel in records.
func (w *waits) word(name string) uint64 {
	word, known := w.words[name]
	if !known {
		w.names = append(w.names, name)
		word = uint64(len(w.names))
		w.words[name] = word
	}
	return word
}

// KernelName returns the name of a function of the kernel, for what a record has in place of an address.
func (s *Source) KernelName(word uint64) string {
	if i := word - 1; s.waits != nil && i < uint64(len(s.waits.names)) {
		return s.waits.names[i]
	}
	return ""
}

var _ interface {
	source.Source
	source.Delayed
	source.Recordable
	source.EventPlacer
} = (*Waits)(nil)

// Waits is the source of the waits of the threads that a [Source] observes, by the records of switches and by looks at
// threads that wait. Unless it is alone, that source does all its work.
type Waits struct{ *Source }

// Waits returns the source of the waits, if [Options.Waits] is set.
func (s *Source) Waits() *Waits { return &Waits{s} }

// alone calls f if w is the only source.
func (w *Waits) alone(f func() error) error {
	if !w.waits.options.Alone {
		return nil
	}
	return f()
}

// Enable implements [source.Source].
func (w *Waits) Enable() error { return w.alone(w.Source.Enable) }

// End implements [source.Source].
func (w *Waits) End() error { return w.alone(w.Source.End) }

// Detach implements [source.Source].
func (w *Waits) Detach() error { return w.alone(w.Source.Detach) }

// FollowCPUs implements [source.Source].
func (w *Waits) FollowCPUs(online []int) error {
	return w.alone(func() error { return w.Source.FollowCPUs(online) })
}

// Remap implements [source.Source].
func (w *Waits) Remap(pid int) error { return w.alone(func() error { return w.Source.Remap(pid) }) }

// Renew implements [source.Source].
func (w *Waits) Renew() error { return w.alone(w.Source.Renew) }

// Close implements [source.Source].
func (w *Waits) Close() error { return w.alone(w.Source.Close) }

// Counts implements [source.Source].
func (w *Waits) Counts() *stacks.Counts { return w.waits.counts }

// Stats implements [source.Source].
func (w *Waits) Stats() (stats probe.Stats, err error) {
	err = w.alone(func() (err error) {
		stats, err = w.Source.Stats()
		return err
	})
	stats.Samples += w.waits.stats.Waits
	stats.Losses[profile.LossMissed] = w.waits.missed
	return stats, err
}

// Event implements [source.Recordable].
func (*Waits) Event(record []byte, to source.Recorder) error { return offcpu.AddEvent(record, to) }

// PlaceEvents implements [source.EventPlacer].
func (*Waits) PlaceEvents(p *naming.StackBuilder, id stacks.TraceID, at *source.EventStack) {
	offcpu.PlaceEvents(p, id, at)
}

// Ring implements [source.Source].
func (w *Waits) Ring() ringbuf.Ring { return (*waited)(w) }

// waited is the ring of the records of waits, and if they are alone of their stacks.
type waited Waits

// FD implements [ringbuf.Ring], as [Source.FDs].
func (*waited) FD() int { return -1 }

// Position implements [ringbuf.Ring].
func (w *waited) Position() uint64 { return 0 }

// ReadTo implements [ringbuf.Ring].
func (w *waited) ReadTo(position uint64, fn func(record []byte) error) error {
	var err error
	if w.waits.options.Alone {
		err = (*walked)(w.Source).ReadTo(position, fn)
	}
	return errors.Join(err, w.passWaits(fn))
}
