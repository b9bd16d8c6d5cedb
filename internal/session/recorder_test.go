package session

import (
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// bytesOf returns an event's record from the kernel side.
func bytesOf[E any](e *E) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e))
}

// No process has these IDs: the limit of Linux is 2^22.
const (
	wakingThread  = 1<<22 + 1
	sampledThread = 1<<22 + 2
)

// begun returns the events of a recording that begins at 1000 ns.
func begun(t *testing.T, as source.Times) *recorder {
	t.Helper()
	e, err := newRecorder(as, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.begin(1000); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Samples of an event that is not time have their amount of it, and represent the interval.
func TestSampledEvent(t *testing.T) {
	cycles := profile.ValueType{Type: "cycles", Unit: "count"}
	e := begun(t, source.Times{Interval: 1e6, Sampled: cycles})
	store := stacks.NewStore(stackstest.Layout{File: &process.File{Path: "/usr/bin/app"}})
	e.connect([]source.Source{new(oncpu.Source)}, store, 0)
	if err := store.Add(stackstest.Trace{ID: 1, PID: sampledThread, User: []uint64{stackstest.FileAt}, End: stackstest.Ended}.Record(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.handleEvent(0, bytesOf(&oncpu.Event{Time: 2000, Id: 1, Weight: 5000, Pid: sampledThread, Tid: sampledThread})); err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder()
	e.place(naming.NewStackBuilder(b, store, naming.Given(store, debugfiletest.NewFinder(t), nil)))
	line, err := e.finish(b.Profile(profile.Meta{}, profile.Losses{}), 5000)
	if err != nil {
		t.Fatal(err)
	}
	if line.Sampled != cycles {
		t.Errorf("got samples of %v, want %v", line.Sampled, cycles)
	}
	for s, err := range line.Events.OnCPU(0) {
		if err != nil || s.Amount != 5000 || s.Weight != 1e6 {
			t.Errorf("got %+v, %v; want 5000 cycles in 1 ms", s, err)
		}
	}
}

// Each event of a source is in the recording with its time, thread and stack, even if the
// stack arrives late or never, and the recording has the same totals.
func TestEvents(t *testing.T) {
	e := begun(t, source.Times{Interval: 1e6, EveryWait: true})
	file := &process.File{Path: "/usr/bin/app"}
	store := stacks.NewStore(stackstest.Layout{File: file})
	const onCPU, offCPU, blockIO, pageFaults = 0, 1, 2, 3
	e.connect([]source.Source{new(oncpu.Source), new(offcpu.Source), new(blockio.Source), new(faults.Source)}, store, 0)
	add := func(b stackstest.Trace) {
		t.Helper()
		if err := store.Add(b.Record(t)); err != nil {
			t.Fatal(err)
		}
	}
	add(stackstest.Trace{ID: 1, PID: sampledThread, User: []uint64{stackstest.FileAt}, End: stackstest.Ended})
	add(stackstest.Trace{ID: 2, Kernel: []uint64{0xffff10}, KernelEnd: stackstest.Ended})
	state := func(s bpf.OffCPUStateClass) uint16 { return uint16(s) }
	sampledEvent := oncpu.Event{Time: 2000, Id: 1, Weight: 1e6, Pid: sampledThread, Tid: sampledThread, Cpu: 1}
	wait := offcpu.Event{
		Time: 900, Duration: 2100, Waiting: 50, Id: 1, Kernel: 2, Pid: sampledThread, Tid: sampledThread,
		State: state(bpf.OffCPUStateClassSTATE_DISK_SLEEP), WakerPid: wakingThread, WakerTid: wakingThread,
	}
	late := oncpu.Event{Time: 3000, Id: 3, Weight: 1e6, Pid: sampledThread, Tid: sampledThread}
	never := oncpu.Event{Time: 4000, Id: 4, Weight: 1e6, Pid: sampledThread, Tid: sampledThread}
	request := blockio.Event{
		Born: 2000, Issued: 2100, Completed: 2300, Id: 1, Sector: 8, Bytes: 4096, Operation: 1 | uint32(bpf.BlockIORequestFlagFLAG_SYNC),
		Device: 1<<20 | 7, Pid: sampledThread, Tid: sampledThread,
	}
	fault := faults.Event{Time: 2500, Id: 1, Address: 0x1000, Latency: 100, Period: 10, Major: 1, Pid: sampledThread, Tid: sampledThread}
	for _, one := range []struct {
		from   int
		record []byte
	}{
		{onCPU, bytesOf(&sampledEvent)},
		{offCPU, bytesOf(&wait)[:offcpu.EventSize]},
		{onCPU, bytesOf(&late)},
		{onCPU, bytesOf(&never)},
		{blockIO, bytesOf(&request)},
		{pageFaults, bytesOf(&fault)},
	} {
		if err := e.handleEvent(one.from, one.record); err != nil {
			t.Fatal(err)
		}
		if err := e.handleEvent(one.from, one.record[:24]); err == nil {
			t.Errorf("got no error for part of an event of source %d", one.from)
		}
	}
	add(stackstest.Trace{ID: 3, PID: sampledThread, User: []uint64{stackstest.FileAt + 0x11}, End: stackstest.Ended})
	e.threads.HandleRecord(perfevent.Exit{Stamp: perfevent.Stamp{Time: 4500}, PID: sampledThread, TID: sampledThread})

	lost := e.count()
	if len(lost) != 1 || lost[stacks.Key{Source: onCPU, ID: 4}].Samples() != 1 {
		t.Errorf("got %v lost, want stack 4", lost)
	}
	sums := map[uint8]stacks.Values{}
	for at, value := range store.Samples {
		sum := sums[at.Source]
		sum.Add(value)
		sums[at.Source] = sum
	}
	for from, want := range map[uint8]stacks.Values{
		onCPU:      {2, 2e6},
		offCPU:     {1, 2050, 50, 2100},
		blockIO:    {1, 4096, 100, 200, 300},
		pageFaults: {1, 0, 10, 1000, 10},
	} {
		if sums[from] != want {
			t.Errorf("source %d: got total %+v, want %+v", from, sums[from], want)
		}
	}

	names := naming.Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{
		0xffff10: {{Name: "folio_wait_bit_common"}}, 0x2000: {{Name: "main"}}, 0x2011: {{Name: "later"}},
	})
	b := profile.NewBuilder()
	e.place(naming.NewStackBuilder(b, store, names))
	p := b.Profile(profile.Meta{}, profile.Losses{})
	line, err := e.finish(p, 5000)
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(s profile.StackID) string { return p.FrameName(p.Stacks[s].Frame) }
	if len(line.Threads) != 1 || line.Threads[0].TID != sampledThread || !line.OffCPUWhole || line.Start != 1000 || line.End != 5000 {
		t.Fatalf("got timeline %+v, want one thread from 1000 to 5000", line)
	}
	if line.Threads[0].End != 4500 || line.Processes[0].End != 4500 {
		t.Errorf("thread that exited just before the end: got %+v of %+v, want an end at 4500", line.Threads[0], line.Processes[0])
	}
	var got []string
	for sample, err := range line.Events.OnCPU(0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, leaf(sample.Stack))
	}
	if len(got) != 3 || got[0] != "main" || got[1] != "later" || got[2] != stackLost {
		t.Errorf("got samples in %q, want main, later and the placeholder", got)
	}
	for off, err := range line.Events.OffCPU(0) {
		if err != nil || off.Start != 1000 || off.Duration != 2000 || off.Runnable != 50 || off.State != profile.StateUninterruptible ||
			off.Waker.PID != wakingThread || line.Reasons[off.Stack] != "disk read" || leaf(off.Stack) != "folio_wait_bit_common" {
			t.Errorf("got %+v, %v, waits for %q", off, err, line.Reasons[off.Stack])
		}
	}
	for io, err := range line.Events.BlockIO(0) {
		if err != nil || io.Queued != 2000 || io.Completed != 2300 || io.Op != profile.BlockWrite || io.Flags != profile.FlagSync ||
			io.Device == "" || io.Bytes != 4096 || io.Sector != 8 || leaf(io.Stack) != "main" {
			t.Errorf("got %+v, %v", io, err)
		}
	}
	for f, err := range line.Events.Faults(0) {
		if err != nil || f.Time != 2400 || f.Latency != 100 || !f.Major || f.Count != 10 || f.Address != 0x1000 || leaf(f.Stack) != "main" {
			t.Errorf("got %+v, %v", f, err)
		}
	}
}
