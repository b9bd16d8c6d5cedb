package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// TestMain lets the test binary be its own workload, because the VMs have no compiler.
func TestMain(m *testing.M) {
	if threads, err := strconv.Atoi(os.Getenv("BRANCH_WORKLOAD")); err == nil {
		_, _ = io.ReadAll(os.Stdin) // until [process.release]
		for range threads - 1 {
			go spin()
		}
		spin()
	}
	os.Exit(m.Run())
}

var sink int

func spin() {
	runtime.LockOSThread()
	for {
		sink++
	}
}

// process keeps some threads busy once it is released.
type process struct {
	pid     int
	release func()
}

// load starts a process that waits for its release, and kills it when the test ends.
func load(t *testing.T, threads int) process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BRANCH_WORKLOAD="+strconv.Itoa(threads))
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return process{pid: cmd.Process.Pid, release: func() { _ = stdin.Close() }}
}

// prepare queues windows of records in the PMU. The records hold the pid and their own
// indexes. prepare returns the samples to expect.
func prepare(t *testing.T, pid, windows, window int) []bolt.Sample {
	t.Helper()
	q := pmu.Queue{PID: pid, Window: window}
	var samples []bolt.Sample
	for w := range windows {
		s := bolt.Sample{PID: pid}
		// The last window is shorter.
		for i := range window - w/(windows-1) {
			r := pmu.Record{From: uint64(pid)<<24 | uint64(w), To: uint64(i), Flags: uint64(i) << 20}
			q.Records = append(q.Records, r)
			s.Entries = append(s.Entries, bolt.Entry(r))
		}
		samples = append(samples, s)
	}
	if err := pmu.Add(q); err != nil {
		t.Fatal(err)
	}
	return samples
}

// harness is a source with the samples that it collected.
type harness struct {
	*Source
	samples []bolt.Sample
	forget  bool   // count samples, but do not keep them
	read    uint64 // the number of samples
}

// start attaches a source and releases processes.
func start(t *testing.T, o Options, tg target.Target, e Event, processes ...process) *harness {
	t.Helper()
	o.Scope = tg.Scope
	s, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(tg, e); err != nil {
		t.Fatal(err)
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		p.release()
	}
	return &harness{Source: s}
}

func (h *harness) poll(t *testing.T) {
	t.Helper()
	h.Mark()
	err := h.Read(func(s bolt.Sample) error {
		if s.Time == 0 {
			return fmt.Errorf("%+v has no time", s)
		}
		h.read++
		if !h.forget {
			s.Time, s.Entries = 0, slices.Clone(s.Entries)
			h.samples = append(h.samples, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitWindows waits until the PMU has delivered all windows. Meanwhile, it calls poll often.
func awaitWindows(t *testing.T, poll func()) {
	t.Helper()
	var status pmu.Status
	testenv.Await(t, func() bool {
		poll()
		var err error
		if status, err = pmu.ReadStatus(); err != nil {
			t.Fatal(err)
		}
		return !status.Left()
	}, func() string { return fmt.Sprintf("the PMU still has windows: %+v", status) })
}

// drain polls until the PMU has delivered all windows and stops sampling.
func (h *harness) drain(t *testing.T) Stats {
	t.Helper()
	awaitWindows(t, func() { h.poll(t) })
	if err := h.Disable(); err != nil {
		t.Fatal(err)
	}
	h.poll(t)
	stats, err := h.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func choose(t *testing.T, frequency uint64) Event {
	t.Helper()
	e, err := Choose(frequency, false)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The source returns the PMU's records unchanged and each sample once, from all threads
// of the target and from no others.
func TestRecords(t *testing.T) {
	testenv.EveryKernel(t)
	for _, test := range []struct {
		nmi    bool
		window int
	}{{false, 32}, {true, 16}, {true, 32}, {true, 64}} {
		t.Run(fmt.Sprintf("nmi=%v/%d", test.nmi, test.window), func(t *testing.T) {
			pmu.Load(t, pmu.Options{NMI: test.nmi, Depth: test.window, Period: 200 * time.Microsecond})
			const windows = 300
			one, two, other := load(t, 1), load(t, 2), load(t, 1)
			want := append(prepare(t, one.pid, windows, test.window), prepare(t, two.pid, windows, test.window)...)
			if err := pmu.Add(pmu.Queue{PID: other.pid, Window: 1, Records: []pmu.Record{{From: 1, To: 2}}}); err != nil {
				t.Fatal(err)
			}
			h := start(t, Options{}, target.Target{Scope: target.Processes, PIDs: []int{one.pid, two.pid}}, choose(t, 5000), one, two, other)
			stats := h.drain(t)
			t.Logf("%+v", stats)
			for _, list := range [][]bolt.Sample{want, h.samples} {
				slices.SortFunc(list, func(a, b bolt.Sample) int { return cmp.Compare(a.Entries[0].From, b.Entries[0].From) })
			}
			if !reflect.DeepEqual(want, h.samples) { // cmp.Diff takes minutes here
				t.Errorf("got %d samples, want the %d prepared ones", len(h.samples), len(want))
			}
			if stats.Lost != 0 || stats.Samples-stats.Empty != uint64(len(want)) {
				t.Errorf("got %+v, want %d samples with records and none lost", stats, len(want))
			}
		})
	}
}

// A full ring loses samples, and the source counts them.
func TestLost(t *testing.T) {
	pmu.Load(t, pmu.Options{Period: 100 * time.Microsecond})
	const windows = 300
	p := load(t, 1)
	prepare(t, p.pid, windows, 32)
	h := start(t, Options{RingSize: 4096}, target.Target{Scope: target.Processes, PIDs: []int{p.pid}}, choose(t, 10000), p)
	awaitWindows(t, func() {})
	stats := h.drain(t)
	t.Logf("%+v", stats)
	if stats.Lost == 0 || stats.Lost+uint64(len(h.samples)) != windows {
		t.Errorf("got %d samples and %d lost, want %d in all", len(h.samples), stats.Lost, windows)
	}
}

// Named finds events of any PMU by name, and refuses events without branch records.
func TestNamed(t *testing.T) {
	pmu.Load(t, pmu.Options{})
	for _, name := range []string{"cycles", pmu.Own + "/event=1/", pmu.Own + "//u"} {
		if _, err := Named(name, sampling.Rate{Frequency: 100}, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"cpu-clock", "instructions"} {
		_, err := Named(name, sampling.Rate{Frequency: 100}, false)
		t.Log(err)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Without hardware support, Load returns an error that says so.
func TestNoHardware(t *testing.T) {
	testenv.EveryKernel(t)
	pmu.Load(t, pmu.Options{None: true})
	_, err := Choose(1000, false)
	t.Log(err)
	if err == nil {
		t.Error("got no error, want one")
	}
}

// The machine survives very many NMIs while maps change and processes start and exit: its
// log stays clean (the rig checks that), and every sample is read or counted as lost.
func TestManyNMIs(t *testing.T) {
	pmu.Load(t, pmu.Options{NMI: true, Period: 20 * time.Microsecond})
	records := make([]pmu.Record, 64)
	for i := range records {
		records[i] = pmu.Record{From: uint64(i + 1), To: uint64(i + 2)}
	}
	if err := pmu.Add(pmu.Queue{Window: 32, Records: records, Repeat: true}); err != nil {
		t.Fatal(err)
	}
	spinning := load(t, 2)
	testenv.Tool(t, "true")
	h := start(t, Options{}, target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}, Children: true}, choose(t, 50000), spinning)
	h.forget = true
	var status pmu.Status
	want := nmis()
	limit := 2*time.Minute + time.Duration(want)*500*time.Microsecond
	for deadline := time.Now().Add(limit); status.NMIs < want && time.Now().Before(deadline); {
		if err := exec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
		h.poll(t)
		var err error
		if status, err = pmu.ReadStatus(); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Disable(); err != nil {
		t.Fatal(err)
	}
	h.poll(t)
	stats, err := h.Stats()
	t.Logf("%d NMIs, %d samples read, %+v, %v", status.NMIs, h.read, stats, err)
	if status.NMIs < want || h.read == 0 {
		t.Errorf("got %d NMIs, want %d, and samples", status.NMIs, want)
	}
	if h.read+stats.Lost+stats.Empty != stats.Samples {
		t.Errorf("got %d read, %d lost and %d empty, want %d samples in all", h.read, stats.Lost, stats.Empty, stats.Samples)
	}
}

// nmis returns how many NMIs a test waits for: FULGUR_NMIS, or a number that takes
// seconds.
func nmis() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("FULGUR_NMIS"), 10, 64); err == nil {
		return n
	}
	return 50_000
}
