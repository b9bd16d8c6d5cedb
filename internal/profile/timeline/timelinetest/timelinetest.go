// Package timelinetest provides a recording for tests.
package timelinetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/timeline"
)

// Start is the start of the recording, in nanoseconds of CLOCK_MONOTONIC.
const Start = int64(5_000_000_000)

// Recording returns a recording of 100 ms with two processes of the same ID and one event
// of every kind. Its stacks come from [encodetest.Typical]. Process 42 is on the CPU
// for 6 ms, and off it for 20.000001 ms, reading from a disk, and for 0.3 ms, preempted.
// It reads 4096 bytes and writes 512.
func Recording(t testing.TB) *profile.Timeline {
	t.Helper()
	p, stacks := encodetest.TypicalStacks()
	p.Tasks, p.Samples = nil, nil
	r, err := timeline.NewRecorder(Start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const ms = int64(time.Millisecond)
	sh := r.Process(42, Start-9*ms)
	main := r.Thread(sh, 42, Start-9*ms)
	worker := r.Thread(sh, 43, Start+3*ms)
	r.NameProcess(sh, Start, "sh")
	r.NameProcess(sh, Start+2*ms, "tar")
	r.NameThread(main, Start, "sh")
	r.NameThread(main, Start+2*ms, "tar")
	r.NameThread(worker, Start+3*ms, "worker")
	again := r.Process(42, Start+60*ms) // the ID is reused
	quiet := r.Thread(again, 42, Start+60*ms)
	r.NameProcess(again, Start+60*ms, "cat")
	r.NameThread(quiet, Start+60*ms, "cat")

	stack := func(n int) profile.StackID { return stacks[n%len(stacks)] }
	for i := range 5 {
		must(r.AddOnCPU(main, profile.OnCPU{Time: Start + int64(i+1)*ms, Stack: stack(3 + i), Weight: ms}))
	}
	must(r.AddOffCPU(main, profile.OffCPU{
		Start: Start + 5*ms + 500_000, Duration: 20*ms + 1, Runnable: 1000, State: profile.StateUninterruptible,
		Stack: stack(18), Waker: profile.Task{PID: 9, TID: 10, Comm: "kworker"}, WakerStack: stack(30),
	}))
	must(r.AddOnCPU(main, profile.OnCPU{Time: Start + 26*ms, Stack: stack(4), Weight: ms}))
	must(r.AddOffCPU(main, profile.OffCPU{Start: Start + 27*ms, Duration: 300_000, State: profile.StateRunnable, Stack: stack(5)}))
	must(r.AddBlockIO(main, profile.BlockIO{
		Queued: Start + 5*ms, Issued: Start + 6*ms, Completed: Start + 25*ms, Device: "nvme0n1", Sector: 2048, Bytes: 4096,
		Op: profile.BlockRead, Flags: profile.FlagReadAhead | profile.FlagSync, Stack: stack(18), File: "/etc/passwd",
	}))
	must(r.AddBlockIO(main, profile.BlockIO{
		Queued: Start + 4*ms, Issued: Start + 4*ms, Completed: Start + 30*ms, Device: "8:16", Sector: 8, Bytes: 512, Op: profile.BlockWrite, Stack: stack(18),
	}))
	must(r.AddFault(worker, profile.Fault{Time: Start + 4*ms, Address: 0x7f0000001000, File: "/lib/libc.so.6", Offset: 0x1000, Major: true, Latency: 2 * ms, Stack: stack(6), Count: 1}))
	must(r.AddFault(worker, profile.Fault{Time: Start + 7*ms, Address: 0xffffffff81000000, Stack: stack(6), Count: 1}))
	opened := r.AddMarkerType(profile.MarkerType{
		Name: "syscalls:sys_enter_openat", Event: "tracepoint:syscalls:sys_enter_open*", Fields: []string{"dfd", "filename", `{"key"}`},
	})
	called := r.AddMarkerType(profile.MarkerType{Name: "uprobe:main", Event: "uprobe:/bin/tar:main"})
	// A later event can arrive first.
	must(r.AddMarker(main, profile.Marker{Time: Start + 4*ms, Type: opened, Values: []string{"-100", "/etc/\x1b\"\xff", ""}, Stack: stack(6)}))
	must(r.AddMarker(main, profile.Marker{Time: Start + 3*ms, Type: called, Stack: stack(2)}))
	r.Count(sh, profile.CounterRSS, Start+10*ms, 4096)
	r.Count(sh, profile.CounterRSS, Start+90*ms, -4096)
	must(r.AddOnCPU(quiet, profile.OnCPU{Time: Start + 61*ms, Stack: stack(2), Weight: ms}))
	must(r.EndThread(worker, Start+50*ms))
	r.EndProcess(sh, Start+70*ms)

	line, err := r.Timeline(p, Start+100*ms, func(s profile.StackID) profile.StackID { return s })
	must(err)
	line.Events = timeline.Sorted(line.Events)
	line.Interval, line.OffCPUWhole = ms, true
	line.Reasons = map[profile.StackID]string{stack(18): "disk read"}
	return line
}

// Busy returns a recording with all kinds of events of three threads, and the times, lengths and stacks that random gives.
func Busy(t testing.TB, random *rand.Rand) *profile.Timeline {
	t.Helper()
	const start, ms = int64(3_000_000_000), int64(time.Millisecond)
	p, stacks := encodetest.TypicalStacks()
	p.Tasks, p.Samples = nil, nil
	r, err := timeline.NewRecorder(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	process := r.Process(42, start)
	r.NameProcess(process, start, "app")
	hit := r.AddMarkerType(profile.MarkerType{Name: "sched:x", Event: "sched:x"})
	sizes := r.AddMarkerType(profile.MarkerType{Name: "malloc", Event: "alloc", Unit: "bytes"})
	for i, name := range []string{"main", "worker", "log"} {
		thread := r.Thread(process, 42+i, start)
		r.NameThread(thread, start, name)
		for at := start; at < start+3000*ms; {
			s := stacks[1+random.IntN(len(stacks)-1)]
			length := (1 + random.Int64N(40)) * ms / 4
			var err error
			switch random.IntN(6) {
			case 0:
				err = r.AddOffCPU(thread, profile.OffCPU{Start: at, Duration: length, State: profile.TaskState(random.IntN(3)), Stack: s})
			case 1:
				err = r.AddBlockIO(thread, profile.BlockIO{Queued: at, Issued: at, Completed: at + length, Device: "sda", Bytes: 512, Op: profile.BlockOp(random.IntN(5)), Flags: profile.BlockFlags(random.IntN(32)), Stack: s, File: "/data"})
			case 2:
				err = r.AddFault(thread, profile.Fault{Time: at, Count: 3, File: []string{"", "/bin/app"}[random.IntN(2)], Stack: s})
			case 3:
				err = r.AddMarker(thread, profile.Marker{Time: at, Type: hit, Stack: s})
				if err == nil {
					err = r.AddMarker(thread, profile.Marker{Time: at, Type: sizes, Stack: s, Weight: 100})
				}
			default:
				err = r.AddOnCPU(thread, profile.OnCPU{Time: at + length - 1, Stack: s, Weight: length})
			}
			if err != nil {
				t.Fatal(err)
			}
			at += length
		}
	}
	line, err := r.Timeline(p, start+3001*ms, func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	line.Interval = 5 * ms
	line.Reasons = map[profile.StackID]string{stacks[1]: "futex", stacks[3]: "disk read"}
	return line
}
