package decode

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// Limits of a page's times.
const (
	maxPageSteps = 1 << 24
	// maxPageEvents bounds the events that stand for the times of a page.
	maxPageEvents = 1 << 26
	// maxPageLength bounds the length of the recording, in nanoseconds, so that no sum overflows.
	maxPageLength = 1 << 60
)

// read reads the header of the times.
func (h *pageTimesHeader) read(j *jsonReader) error {
	return j.object(func(key string) (err error) {
		var n int64
		switch key {
		case "step":
			h.Step, err = j.integer()
		case "scale":
			h.Scale, err = j.integer()
		case "steps":
			n, err = j.integer()
			h.Steps = int(n)
		case "entries":
			n, err = j.integer()
			h.Entries = int(n)
		case "threads":
			return j.columns(map[string]*[]int32{"pid": &h.PID, "tid": &h.TID}, func(key string) (err error) {
				if key != "name" {
					return j.skip()
				}
				h.Names, err = rows(j, maxPageNames, j.string)
				return err
			})
		default:
			err = j.skip()
		}
		return err
	})
}

// pageTimes are the times of a page: for each row of samples, weights at steps of the recording.
// Its events have the sums of the page in each step, and as many events as the page, but not the
// times within a step.
type pageTimes struct {
	header *pageTimesHeader
	types  []profile.ValueType
	rows   []pageRow
	at     []uint32 // steps
	weight []int64
	comms  []string // names of tasks

	// columns has the first column of the values of each kind of events, -1 if there are none, and
	// events the column of their number, likewise.
	columns map[uint32]int
	events  int
	sampled profile.ValueType // what the samples on the CPU add up to, if it is not CPU time
}

// pageRow is a row of samples with its entries of the table of times, from first to end-1.
type pageRow struct {
	stack        profile.StackID
	comm         int32 // of its task: an index of the header's strings
	thread, kind uint32
	first, end   int
	values       []int64
}

// Kinds of events of a page, see package flame. Further ones are hits of events.
const (
	pageOnCPU uint32 = iota
	pageOffCPU
	pageBlockIO
	pageFault
	pageMarker
)

// readTimes reads the table of times.
func (c *pageReader) readTimes() error {
	t, h := c.times, &c.header.Times
	switch {
	case h.Step <= 0 || h.Scale <= 0 || h.Entries < 0 || h.Entries > maxPageRows || h.Steps > maxPageSteps || h.Step > maxPageLength/int64(h.Steps):
		return fmt.Errorf("%d entries in %d steps of %d ns", h.Entries, h.Steps, h.Step)
	case len(h.Names) != len(h.PID) || len(h.Names) != len(h.TID) || len(h.Names) == 0 && len(t.rows) > 0:
		return fmt.Errorf("columns of threads with %d, %d and %d rows", len(h.Names), len(h.PID), len(h.TID))
	}
	counts, err := c.column(len(t.rows), uint64(h.Entries))
	if err != nil {
		return err
	}
	next := 0
	for i, n := range counts {
		t.rows[i].first = next
		next += int(n)
		t.rows[i].end = next
	}
	if next != h.Entries {
		return fmt.Errorf("%d of %d entries belong to samples", next, h.Entries)
	}
	if t.at, err = c.column(h.Entries, uint64(h.Steps-1)); err != nil {
		return err
	}
	for _, r := range t.rows {
		for i := r.first + 1; i < r.end; i++ {
			if t.at[i] += t.at[i-1]; t.at[i] >= uint32(h.Steps) {
				return errors.New("an entry after the end")
			}
		}
	}
	t.weight = make([]int64, h.Entries) // the times of as many entries were there
	for i := range t.weight {
		if i%(1<<16) == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		w, err := binary.ReadUvarint(c.r)
		if err != nil {
			return noEOF(err)
		}
		if w > uint64(maxPageLength/h.Scale) {
			return fmt.Errorf("a weight of %d times %d", w, h.Scale)
		}
		t.weight[i] = int64(w) * h.Scale
	}
	threads, err := c.column(len(t.rows), uint64(max(len(h.Names)-1, 0)))
	if err != nil {
		return err
	}
	kinds, err := c.column(len(t.rows), math.MaxUint16)
	if err != nil {
		return err
	}
	for i := range t.rows {
		t.rows[i].thread, t.rows[i].kind = threads[i], kinds[i]
	}
	t.comms = c.header.Strings
	return nil
}

// understand finds the columns of the values of each kind of events, and reports whether there are
// as many as a page of fulgur has.
func (t *pageTimes) understand() bool {
	t.columns = map[uint32]int{}
	for _, r := range t.rows {
		t.columns[r.kind] = -1
	}
	width := func(kind uint32) int {
		if kind == pageOffCPU || kind == pageBlockIO {
			return 2
		}
		return 1
	}
	kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(t.columns)), func(k uint32) bool { return k == pageOnCPU })
	column := len(t.types)
	for _, kind := range slices.Backward(kinds) {
		column -= width(kind)
		t.columns[kind] = column
	}
	// What is left is the number of events, and what the samples add up to.
	_, running := t.columns[pageOnCPU]
	switch {
	case column == 2 && running:
		t.columns[pageOnCPU] = 1
	case column == 1 && running:
		t.columns[pageOnCPU], t.events = 0, -1
	case column != 1 && column != 2:
		return false
	}
	if cpu := t.columns[pageOnCPU]; running && t.types[cpu] != cpuTime {
		t.sampled = t.types[cpu]
	}
	return true
}

// Timeline implements [Times].
func (t *pageTimes) Timeline(p *profile.Profile, stack func(profile.StackID) profile.StackID) *profile.Timeline {
	h := t.header
	line := &profile.Timeline{
		Profile: p, End: h.Step*int64(h.Steps) - 1, Interval: h.Step, Resolution: h.Step, Sampled: t.sampled,
		Reasons: map[profile.StackID]string{},
	}
	e := &pageEvents{pageTimes: t, p: p, stack: stack, byThread: make([][]uint32, len(h.Names)), markers: map[uint32]profile.MarkerTypeID{}}
	line.Events = e
	processes := map[int]profile.ProcessID{}
	for i, name := range h.Names {
		pid := id(int64(h.PID[i]))
		process, ok := processes[pid]
		if !ok {
			process = profile.ProcessID(len(line.Processes))
			processes[pid] = process
			line.Processes = append(line.Processes, profile.Process{PID: pid, Names: []profile.Name{{Name: name}}})
		}
		line.Threads = append(line.Threads, profile.Thread{Process: process, TID: id(int64(h.TID[i]))})
	}
	for _, kind := range slices.Sorted(maps.Keys(t.columns)) {
		if kind >= pageMarker {
			v := t.types[t.columns[kind]]
			e.markers[kind] = profile.MarkerTypeID(len(line.MarkerTypes))
			line.MarkerTypes = append(line.MarkerTypes, profile.MarkerType{Name: v.Type, Event: v.Type, Unit: v.Unit})
		}
	}
	for i, r := range t.rows {
		e.byThread[r.thread] = append(e.byThread[r.thread], uint32(i))
		if r.kind == pageOffCPU {
			if of, reason := e.noted(r.stack); reason != "" && reason != preempted && reason != noReason && line.Reasons[of] == "" {
				line.Reasons[of] = reason
			}
		}
	}
	for i := range line.Threads {
		line.Threads[i].Names = t.names(e.byThread[i], h.Names[i])
	}
	return line
}

// names returns the names of a thread with the times at which its rows have them first.
func (t *pageTimes) names(rows []uint32, last string) (names []profile.Name) {
	first := map[int32]uint32{}
	for _, i := range rows {
		if r := t.rows[i]; r.first < r.end {
			if at, ok := first[r.comm]; !ok || t.at[r.first] < at {
				first[r.comm] = t.at[r.first]
			}
		}
	}
	for comm, at := range first {
		name := t.comms[comm]
		if name == plain.Terminal("") {
			name = ""
		}
		names = append(names, profile.Name{At: int64(at) * t.header.Step, Name: name})
	}
	slices.SortFunc(names, func(a, b profile.Name) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name)) })
	if len(names) == 0 {
		names = []profile.Name{{Name: last}}
	}
	return names
}

// Notes on the stacks of waits and page faults that say that there is none.
const (
	preempted = "preempted"
	noReason  = "off-cpu"
	noFile    = "memory without a file"
)

// pageEvents implements [profile.Events].
type pageEvents struct {
	*pageTimes
	p        *profile.Profile
	stack    func(profile.StackID) profile.StackID
	byThread [][]uint32 // indexes of rows
	markers  map[uint32]profile.MarkerTypeID
}

// noted returns a stack without the note at its end, and the note.
func (e *pageEvents) noted(s profile.StackID) (profile.StackID, string) {
	s = e.stack(s)
	if s == 0 {
		return s, ""
	}
	at := e.p.Stacks[s]
	name := e.p.FrameName(at.Frame)
	if e.p.Frames[at.Frame].Kind != profile.KindMarker || !strings.HasPrefix(name, "[") || !strings.HasSuffix(name, "]") {
		return s, ""
	}
	return at.Parent, name[1 : len(name)-1]
}

// pageEvent is a part of a row's weight, from a time on.
type pageEvent struct {
	row          *pageRow
	from, length int64
	weight       int64
	values       [2]int64 // of its kind
}

// of returns the events of a kind of a thread, in order of time. Kinds from pageMarker on are one.
func (e *pageEvents) of(thread profile.ThreadID, kind uint32) (list []pageEvent) {
	for _, i := range e.byThread[thread] {
		if r := &e.rows[i]; min(r.kind, pageMarker) == kind && len(list) < maxPageEvents {
			list = e.events1(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b pageEvent) int { return cmp.Compare(a.from+a.length, b.from+b.length) })
	return list
}

// spans returns the weights of a row. Waits, requests and long samples span several steps: a span
// of a wait ends where the thread also does something else in a step.
func (e *pageEvents) spans(r *pageRow) (list []pageEvent) {
	step := e.header.Step
	joins := r.kind == pageOffCPU || r.kind == pageBlockIO || r.kind == pageOnCPU && e.sampled != profile.ValueType{}
	begins := 0 // the entry with which the last span begins
	isFull := func(i int) bool { return e.weight[i] >= step-step/1000-1 }
	for i := r.first; i < r.end; i++ {
		from, w := int64(e.at[i])*step, e.weight[i]
		if n := len(list); joins && n > 0 && i > r.first && e.at[i] == e.at[i-1]+1 &&
			(r.kind != pageOffCPU || begins == i-1 || isFull(i-1)) {
			last := &list[n-1]
			if r.kind == pageOffCPU {
				if begins == i-1 { // the wait began in the step before, and goes on
					last.from += max(0, step-last.weight)
				}
				last.length = last.weight + w
			} else {
				last.length += step
			}
			last.weight += w
			continue
		}
		begins = i
		length := step
		if r.kind == pageOffCPU {
			length = max(1, min(w, step))
		}
		list = append(list, pageEvent{row: r, from: from, length: length, weight: w})
	}
	return list
}

// events1 appends the events of a row: as many as the page says, if its times allow.
func (e *pageEvents) events1(list []pageEvent, r *pageRow) []pageEvent {
	spans := e.spans(r)
	count := int64(len(spans))
	if e.events >= 0 {
		count = max(count, min(r.values[e.events], int64(maxPageEvents-len(list))))
	}
	if len(spans) == 0 {
		return list
	}
	var whole, done int64
	for _, s := range spans {
		whole += s.weight
	}
	var given [2]int64
	share := func(v int64, weight int64) int64 {
		return int64(float64(v) * (float64(weight) / float64(max(whole, 1))))
	}
	column := e.columns[r.kind]
	last := int64(0) // of the events
	for i, s := range spans {
		n := count/int64(len(spans)) + min(1, max(0, count%int64(len(spans))-int64(i)))
		for k := range n {
			part := pageEvent{row: r, from: s.from + s.length*k/n, weight: s.weight*(k+1)/n - s.weight*k/n}
			part.length = s.from + s.length*(k+1)/n - part.from
			done += part.weight
			last++
			for v := range given {
				if v > 0 && r.kind != pageBlockIO && r.kind != pageOffCPU {
					break
				}
				all := r.values[column+v]
				part.values[v] = share(all, done) - given[v]
				if last == count {
					part.values[v] = all - given[v]
				}
				given[v] += part.values[v]
			}
			list = append(list, part)
		}
	}
	return list
}

// OnCPU implements [profile.Events].
func (e *pageEvents) OnCPU(thread profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return func(yield func(profile.OnCPU, error) bool) {
		for _, s := range e.of(thread, pageOnCPU) {
			on := profile.OnCPU{Time: s.from + s.length - 1, Stack: e.stack(s.row.stack), Weight: s.weight, CPU: -1}
			if e.sampled == (profile.ValueType{}) {
				on.Weight = s.values[0]
			} else {
				on.Amount = s.values[0]
			}
			if !yield(on, nil) {
				return
			}
		}
	}
}

// OffCPU implements [profile.Events].
func (e *pageEvents) OffCPU(thread profile.ThreadID) iter.Seq2[profile.OffCPU, error] {
	return func(yield func(profile.OffCPU, error) bool) {
		for _, s := range e.of(thread, pageOffCPU) {
			stack, reason := e.noted(s.row.stack)
			wait := profile.OffCPU{Start: s.from, Duration: s.values[0], State: profile.StateSleeping, Stack: stack}
			if reason == preempted {
				wait.State = profile.StateRunnable
			}
			if !yield(wait, nil) {
				return
			}
		}
	}
}

// BlockIO implements [profile.Events].
func (e *pageEvents) BlockIO(thread profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	return func(yield func(profile.BlockIO, error) bool) {
		for _, s := range e.of(thread, pageBlockIO) {
			stack, note := e.noted(s.row.stack)
			r := profile.BlockIO{Queued: s.from, Issued: s.from, Completed: s.from + s.values[1], Bytes: uint64(max(s.values[0], 0)), Stack: stack}
			r.Device, r.Op, r.Flags = request(note)
			if !yield(r, nil) {
				return
			}
		}
	}
}

// request returns the device, operation and flags of the note on the stack of a request.
func request(note string) (device string, op profile.BlockOp, flags profile.BlockFlags) {
	device, rest, _ := strings.Cut(note, " ")
	for op = profile.BlockRead; op < profile.BlockOther; op++ {
		if rest == op.String() || strings.HasPrefix(rest, op.String()+" ") {
			break
		}
	}
	rest = strings.TrimPrefix(rest, op.String())
	for flag := profile.BlockFlags(1); flag != 0; flag <<= 1 {
		if name := flag.String(); name != "" && strings.HasPrefix(rest, name) {
			flags |= flag
			rest = rest[len(name):]
		}
	}
	return device, op, flags
}

// Faults implements [profile.Events].
func (e *pageEvents) Faults(thread profile.ThreadID) iter.Seq2[profile.Fault, error] {
	return func(yield func(profile.Fault, error) bool) {
		for _, s := range e.of(thread, pageFault) {
			stack, file := e.noted(s.row.stack)
			if file == noFile {
				file = ""
			}
			if !yield(profile.Fault{Time: s.from, Count: s.values[0], File: file, Stack: stack}, nil) {
				return
			}
		}
	}
}

// Markers implements [profile.Events].
func (e *pageEvents) Markers(thread profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return func(yield func(profile.Marker, error) bool) {
		for _, s := range e.of(thread, pageMarker) {
			if !yield(profile.Marker{Time: s.from, Type: e.markers[s.row.kind], Stack: e.stack(s.row.stack), Weight: s.values[0]}, nil) {
				return
			}
		}
	}
}
