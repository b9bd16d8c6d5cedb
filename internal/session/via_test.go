package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stopping"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
)

// What perf events alone cannot measure is a usage error, rather than a part of it.
func TestPreparePerf(t *testing.T) {
	event := func(specs ...perfevent.Spec) *oncpu.Subject {
		m := oncpu.New(oncpu.Config{Frequency: 99})
		m.Specs = specs
		return m
	}
	waits := func(c offcpu.Config) source.Subject { return offcpu.New(c) }
	own := target.Target{Scope: target.Processes, PIDs: []int{1}}
	core, atom := perfevent.Spec{Name: "cycles", CPUs: []int{0}}, perfevent.Spec{Name: "cycles", CPUs: []int{1}}
	for name, test := range map[string]struct {
		options Options
		what    source.Subject
		want    string
	}{
		"an event of each kind of CPU": {Options{Target: own}, event(core, atom), "is a separate event on each kind of CPU here: choose cpu-clock"},
		"the kernel":                   {Options{Target: own, KernelOnly: true}, event(), "without user code"},
		"an event in the kernel":       {Options{Target: own}, event(perfevent.Spec{Name: "cycles", ExcludeUser: true}), "without user code"},
		"the machine":                  {Options{}, event(), "only your own processes"},
		"a cgroup":                     {Options{Target: target.Target{Scope: target.Cgroup}}, event(), "only your own processes"},
		"idle CPUs":                    {Options{Target: own}, oncpu.New(oncpu.Config{Idle: true}), "do not measure idle CPUs"},
		"parallelism":                  {Options{Target: own}, oncpu.New(oncpu.Config{Parallelism: true}), "do not see which threads run at the same time"},
		"disk requests":                {Options{Target: own}, blockio.New(blockio.Config{}), "measure only CPU time and waits"},
		"the run queue":                {Options{Target: own}, waits(offcpu.Config{RunQueue: true}), "do not see when threads are woken"},
		"wakers":                       {Options{Target: own}, waits(offcpu.Config{WakerStacks: true}), "which thread wakes another"},
		"peers":                        {Options{Target: own}, waits(offcpu.Config{Peers: true}), "do not see the peers"},
		"kernel threads":               {Options{Target: own}, waits(offcpu.Config{Threads: offcpu.KernelThreads}), "do not measure kernel threads"},
		"some states":                  {Options{Target: own}, waits(offcpu.Config{States: 2}), "do not see the states"},
		"waits by CPU":                 {Options{Target: own, PerCPU: true}, waits(offcpu.Config{}), "do not tell the waits of CPUs apart"},
		"windows":                      {Options{Target: own, Every: time.Second}, untimed{newWall(oncpu.Config{}, 0)}, "do not divide waits among windows"},
		"a stream":                     {Options{Target: own}, streamed{untimed{newWall(oncpu.Config{}, 0)}}, "do not write waits while they go on"},
		"waits of the machine":         {Options{}, waits(offcpu.Config{}), "only your own processes"},
		"locks":                        {Options{Target: own}, (&RecordOptions{Locks: true}).Subject(), "record neither events nor locks"},
	} {
		if recorded, ok := test.what.(*recording); ok {
			recorded.choose(nil)
		}
		if err := test.options.preparePerf(test.what); !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want a usage error with %q", name, err, test.want)
		}
	}
}

// What stops cannot measure is a usage error.
func TestPrepareStops(t *testing.T) {
	event := func(name string) *oncpu.Subject {
		m := oncpu.New(oncpu.Config{Frequency: 99})
		spec, err := perfevent.ParseEvent(name)
		if err != nil {
			t.Fatal(err)
		}
		m.Specs = []perfevent.Spec{spec}
		return m
	}
	own := target.Target{Scope: target.Processes, PIDs: []int{1}}
	for name, test := range map[string]struct {
		options Options
		what    source.Subject
		want    string
	}{
		"another event": {Options{Target: own}, event("page-faults"), "sample CPU time, not page-faults"},
		"user code":     {Options{Target: own}, event("cpu-clock:u"), "cannot tell time in the kernel apart"},
		"some CPUs":     {Options{Target: target.Target{Scope: target.Processes, CPUs: []int{0}}}, event("cpu-clock"), "cannot be limited to CPUs"},
		"the machine":   {Options{}, event("cpu-clock"), "only your own processes"},
		"waits":         {Options{Target: own}, offcpu.New(offcpu.Config{}), "do not measure waits"},
		"wall":          {Options{Target: own}, newWall(oncpu.Config{}, 0), "do not measure waits"},
	} {
		if err := test.options.prepareStops(test.what); !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want a usage error with %q", name, err, test.want)
		}
	}
}

// The lines say how a target was stopped, at what cost, and what has no sample.
func TestStopLines(t *testing.T) {
	const line = "without CAP_BPF: by stops (ptrace), time in the kernel counts at the system call"
	u := perfring.Unmeasured{CPUTime: 2 * time.Second, Unsampled: 110 * time.Millisecond}
	s := stopping.Stats{
		Rounds: 400, Lasted: 10 * time.Second, Stops: 300, Median: 71400 * time.Nanosecond, Longest: 3456 * time.Microsecond, Waiting: 5, Interrupted: 1,
		Refused: []stopping.RefusalError{{PID: 7, Reason: errors.New("belongs to another user")}}, Others: 2, Traced: 3, Tracer: "is already being traced by process 9 (gdb\x1b): end that tracer first",
	}
	rest := []string{
		"process 7 was not sampled: it belongs to another user", "2 child processes with other privileges could not be sampled",
		`3 times could not be sampled: the thread is already being traced by process 9 (gdb\x1b): end that tracer first`,
	}
	want := append([]string{
		line + "; 0.11 s of 2.00 s of CPU time was not sampled: of threads that were not found running, or since their last sample",
		"300 stops, half of them shorter than 71µs, the longest 3.46ms; 5 came when the thread had begun to wait, and ended 1 system call with EINTR",
		"looked at threads 40 times per second instead of 100: more would cost too much, or the machine is busy",
	}, rest...)
	if diff := cmp.Diff(want, stopLines(u, s, true, 10*time.Millisecond)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append([]string{line}, rest...), stopLines(u, s, false, 10*time.Millisecond)); diff != "" {
		t.Errorf("without amounts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{line}, stopLines(perfring.Unmeasured{}, stopping.Stats{}, true, time.Second)); diff != "" {
		t.Errorf("without stops (-want +got):\n%s", diff)
	}
}

// The line says where the missing time was, as far as that is known.
func TestLeftOut(t *testing.T) {
	const line = "without CAP_BPF: user code only"
	if got := leftOut(perfring.Unmeasured{UserCode: true, CPUTime: time.Second, Unsampled: time.Millisecond}, true, time.Second); got != line {
		t.Errorf("got %q for next to nothing, want %q", got, line)
	}
	u := perfring.Unmeasured{UserCode: true, CPUTime: 2910 * time.Millisecond, Unsampled: 310 * time.Millisecond}
	for _, test := range []struct {
		brief   uint64
		amounts bool
		want    string
	}{
		{0, true, line + "; 0.31 s of 2.91 s of CPU time, in the kernel, was not sampled"},
		{7, true, line + "; 0.31 s of 2.91 s of CPU time, in the kernel, was not sampled"},
		{8, true, line + "; 0.31 s of 2.91 s of CPU time, in the kernel or in 8 threads that ended before the first sample, was not sampled"},
		{8, false, line},
	} {
		u.Brief = test.brief
		if got := leftOut(u, test.amounts, 10*time.Millisecond); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	if got := leftOut(perfring.Unmeasured{UserCode: true, Brief: 9}, true, time.Second); got != line {
		t.Errorf("got %q without clocks, want %q", got, line)
	}
	u.UserCode, u.Brief = false, 0
	if got, want := leftOut(u, true, time.Second), "without CAP_BPF: by perf events"; got != want {
		t.Errorf("got %q with the kernel's code, want %q", got, want)
	}
	u.Brief = 1
	if got, want := leftOut(u, true, time.Second), "without CAP_BPF: by perf events; 0.31 s of 2.91 s of CPU time, in 1 thread that ended before the first sample, was not sampled"; got != want {
		t.Errorf("got %q with the kernel's code, want %q", got, want)
	}
}

// The line says which part of the time of waits lacks stacks, and why.
func TestUnseenWaits(t *testing.T) {
	const line = "without CAP_BPF: waits by perf events, with the stacks of those long enough to look at"
	w := perfring.WaitStats{Waits: 9, Time: 12340 * time.Millisecond, Preempted: 120 * time.Millisecond, TooShort: 230 * time.Millisecond, Forbidden: time.Millisecond}
	if got, want := unseenWaits(w, true), line+"; of 12.34 s, 0.23 s in waits too short to look and 0.12 s of waiting for a CPU have none"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, amounts := range []bool{false, true} {
		if got := unseenWaits(perfring.WaitStats{Waits: 1, Time: time.Second}, amounts); got != line {
			t.Errorf("amounts %t: got %q of waits with stacks, want %q", amounts, got, line)
		}
	}
}

// A recording without BPF programs keeps its CPU samples and waits.
func TestRecordingKeeps(t *testing.T) {
	for _, o := range []RecordOptions{{}, {NoCPU: true}, {NoOffCPU: true}, {NoBlockIO: true}} {
		m := o.Subject().(*recording)
		m.choose(nil)
		parts := ownParts(untimed{m})
		if parts.whole != m || (parts.cpu == nil) != o.NoCPU || (parts.waits == nil) != o.NoOffCPU {
			t.Errorf("%+v: got the parts %+v", o, parts)
		}
		m.keep(parts)
		if after := ownParts(m); after != parts || len(m.parts) != len(m.joint) || len(m.Values(nil)) != len(m.parts)+1 {
			t.Errorf("%+v: got %d parts and %d subjects, %+v", o, len(m.parts), len(m.joint), after)
		}
	}
}
