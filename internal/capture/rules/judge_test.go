package rules_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/rules"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/containers"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
	"fulgur/internal/unwind/unwindtest"
)

// workloadVar makes the test binary a workload.
const workloadVar = "RULES_WORKLOAD"

func TestMain(m *testing.M) {
	switch os.Getenv(workloadVar) {
	case "":
		os.Exit(m.Run())
	case "nobody": // a user without another program
		if err := syscall.Setuid(nobody); err != nil {
			panic(err)
		}
	case "ends": // with an address space that takes a while to tear down
		if _, err := unix.Mmap(-1, 0, 512<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE); err != nil {
			panic(err)
		}
		os.Exit(0)
	case "waits":
		for {
			time.Sleep(5 * time.Millisecond)
		}
	}
	for i := 0; ; i++ {
		sink ^= i
	}
}

var sink int

const nobody = 65534

// program copies the test binary to a file of its own.
func program(t testing.TB, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// run starts a program as a workload. in are directories of cgroups for it, one at most.
func run(t testing.TB, path, mode string, in ...*os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path)
	for _, dir := range in {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	}
	cmd.Env = append(os.Environ(), workloadVar+"="+mode)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// stopped starts a program as a workload, and stops it when it works.
func stopped(t *testing.T, path, mode string, in ...*os.File) *exec.Cmd {
	t.Helper()
	cmd := run(t, path, mode, in...)
	user := uint32(0)
	if mode == "nobody" {
		user = nobody
	}
	testenv.Await(t, func() bool {
		status, err := procfs.Process(cmd.Process.Pid).Status()
		return err == nil && status.UIDs[1] == user
	}, func() string { return "the process does not change its user" })
	testenv.AwaitCPUTime(t, cmd.Process.Pid, 50*time.Millisecond)
	if err := unwindtest.Stop(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd
}

const frequency = 997

// measurement measures the whole machine by rules.
type measurement struct {
	source.Source
	judge   *rules.Judge
	tracker process.Tracker
	store   *stacks.Store
}

// measure starts a measurement of samples. byImage is the kernel side's key of a group.
func measure(t testing.TB, r rules.Rules, byImage bool) *measurement {
	t.Helper()
	clock, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		t.Fatal(err)
	}
	return start(t, r, byImage, func(o probe.Options) (source.Source, error) {
		return oncpu.Load(oncpu.Options{Options: o, Specs: []perfevent.Spec{clock}, Rate: oncpu.Rate{Frequency: frequency}})
	})
}

// start starts a measurement by a source.
func start(t testing.TB, r rules.Rules, byImage bool, load func(probe.Options) (source.Source, error)) *measurement {
	t.Helper()
	owners, err := containers.NewTracker()
	if err != nil {
		t.Fatal(err)
	}
	m := &measurement{tracker: process.Tracker{Cgroups: true}}
	m.tracker.HandleRecord = func(record perfevent.Record) {
		if created, ok := record.(perfevent.Cgroup); ok {
			m.judge.Created(created.ID, owners.Created(created.ID, created.Path))
		}
	}
	if err := m.tracker.Listen(nil); err != nil {
		t.Fatal(err)
	}
	if m.judge, err = rules.NewBy(byImage, r, owners, m.tracker.Processes.Program, nil); err != nil {
		t.Fatal(err)
	}
	if m.Source, err = load(probe.Options{
		RingSize: 8 << 20, CountEntries: 1 << 16, SeenEntries: probe.DefaultSeenEntries,
		MaxDepth: 127, Scope: target.System, Rules: m.judge, ByCgroup: true,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), m.judge.Close(), m.tracker.StopListening(), owners.Close()); err != nil {
			t.Error(err)
		}
	})
	m.store = stacks.NewStore(m.tracker.Processes)
	m.store.Owners, m.store.Judge = owners, m.judge.Consider
	if err := m.judge.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := m.Attach(target.Target{}); err != nil {
		t.Fatal(err)
	}
	// All samples count, so that they can be compared with the periods of the event.
	gate := m.Source.(interface{ Gate() *probe.Gate }).Gate()
	if err := errors.Join(gate.Open(), m.Enable(), m.Begin()); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *measurement) poll(t testing.TB) {
	t.Helper()
	position := m.Ring().Position()
	m.tracker.Drain()
	if err := m.Ring().ReadTo(position, func(r []byte) error {
		if kind, err := stacks.RecordType(r); err != nil {
			return err
		} else if kind == bpf.RecordEvent {
			return m.Counts().AddRecord(r)
		}
		if err := m.store.Add(r); err != nil {
			return err
		}
		if key, value, ok := m.Counts().First(r); ok {
			m.Counts().Add(key, value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	m.judge.Poll()
}

// while polls until a process has used more CPU time.
func (m *measurement) while(t testing.TB, pid int, more time.Duration) {
	t.Helper()
	begin := cpuTime(t, pid)
	testenv.Await(t, func() bool {
		m.poll(t)
		return cpuTime(t, pid)-begin > more
	}, func() string { return fmt.Sprintf("process %d does not run", pid) })
}

func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	used, err := testenv.CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// image is a process that runs a program with a name. Between fork and exec, it runs its parent's.
type image struct {
	pid  int
	name string
}

// account is what a measurement found: samples by process, those that were excluded, and those among them
// about which the kernel side could not decide.
type account struct {
	taken          map[image]int
	excluded, open int
	skipped        int
	thinned        int
	weight         map[image]uint64 // of the samples taken
}

// stop ends a measurement.
func (m *measurement) stop(t *testing.T) {
	t.Helper()
	if err := m.Detach(); err != nil {
		t.Fatal(err)
	}
	m.poll(t)
	if err := m.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
}

// finish ends a measurement of samples, and checks that the periods of all samples are accounted for.
func (m *measurement) finish(t *testing.T) account {
	t.Helper()
	m.stop(t)
	a := account{taken: map[image]int{}, weight: map[image]uint64{}}
	var takenTime, openTime uint64
	for key, v := range m.Counts().Total() {
		trace, ok := m.store.Trace(key.ID)
		if !ok {
			t.Fatal("a trace was lost")
		}
		if trace.Open && m.judge.Leaves(trace.Rules, trace.Owner) {
			a.open += int(v.Samples())
			openTime += v[oncpu.Weight]
			continue
		}
		a.taken[image{int(trace.PID), trace.Name()}] += int(v.Samples())
		a.weight[image{int(trace.PID), trace.Name()}] += v[oncpu.Weight]
		takenTime += v[oncpu.Weight]
	}
	stats, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	clock := m.Source.(*oncpu.Source)
	periods, err := clock.StatSum(bpf.StatPeriods)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := clock.StatSum(bpf.StatIdlePeriods)
	if err != nil {
		t.Fatal(err)
	}
	if lost := stats.Losses[profile.LossSamples]; lost > 0 {
		t.Fatalf("%d samples were lost", lost)
	}
	left := uint64(0) // by rules with rates, to samples that were not taken any more
	for i := range uint32(bpf.OnCPURuleLimitRULES_SLOWER) {
		var perCPU []bpf.OnCPUThinned
		if err := clock.Maps[bpf.OnCPUMapRulesThinned].Lookup(i, &perCPU); err != nil {
			t.Fatal(err)
		}
		for _, on := range perCPU {
			left += on.Weight
		}
	}
	if all := periods - idle; takenTime+openTime+stats.ExcludedPeriods+left != all {
		t.Errorf("got %d ns taken, %d excluded, %d excluded later and %d left, want %d in all", takenTime, stats.ExcludedPeriods, openTime, left, all)
	}
	a.thinned = int(stats.Thinned)
	a.excluded = int(stats.Excluded) + a.open
	a.skipped = int(stats.Losses[profile.LossSkipped])
	t.Logf("%d processes taken, %d samples excluded, %d of them later, %d skipped", len(a.taken), a.excluded, a.open, a.skipped)
	return a
}

// given parses rules.
func given(t *testing.T, texts ...string) (all []rules.Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// A process that a rule excludes has no samples, and those of its CPU time are excluded. A process that
// the only rules include is the only one with samples. Both for processes that ran before and for new
// ones, by each property.
func TestRules(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	one := program(t, "one")
	two := filepath.Join(filepath.Dir(one), "two") // the same file by another name
	if err := os.Link(one, two); err != nil {
		t.Fatal(err)
	}
	group := cgroup(t)
	for name, c := range map[string]struct {
		rule    string
		mode    string
		group   bool // whether the process is in the cgroup
		byImage bool
	}{
		"program":           {rule: "program=" + two},
		"name of a program": {rule: "program=t?o"},
		"user":              {rule: "user=" + strconv.Itoa(nobody), mode: "nobody"},
		"cgroup":            {rule: "cgroup=" + group.path, group: true},
		"cgroup by image":   {rule: "cgroup=" + group.path, group: true, byImage: true},
		"all of them":       {rule: "program=" + two + ",user=" + strconv.Itoa(nobody) + ",cgroup=/**/" + filepath.Base(group.path), mode: "nobody", group: true},
	} {
		if testenv.BriefInVM() && (!c.group || c.mode == "") {
			continue // "all of them" has the same properties
		}
		for _, include := range []bool{false, true} {
			for _, isNew := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/include %v/new %v", name, include, isNew), func(t *testing.T) {
					other := stopped(t, one, "spin").Process.Pid
					r := rules.Rules{Exclude: given(t, c.rule)}
					if include {
						r = rules.Rules{Include: r.Exclude}
					}
					var m *measurement
					if isNew {
						m = measure(t, r, c.byImage)
					}
					var in []*os.File
					if c.group {
						in = append(in, group.dir)
					}
					matched := stopped(t, two, cmp.Or(c.mode, "spin"), in...).Process.Pid
					if !isNew {
						m = measure(t, r, c.byImage)
					}
					before := cpuTime(t, matched)
					for _, pid := range []int{matched, other} {
						if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
							t.Fatal(err)
						}
					}
					m.while(t, matched, 300*time.Millisecond)
					m.while(t, other, 300*time.Millisecond)
					for _, pid := range []int{matched, other} {
						if err := unwindtest.Stop(pid); err != nil {
							t.Fatal(err)
						}
					}
					used := cpuTime(t, matched) - before
					a := m.finish(t)
					if a.open == a.excluded {
						t.Error("the kernel side excluded nothing")
					}
					early := isNew && c.mode != "" // it had samples before it had the property
					if include {
						for taken := range a.taken { // before its exec, it runs this program in the cgroup
							if taken.pid != matched {
								t.Errorf("got samples of %v, want only of %d", taken, matched)
							}
						}
						atLeast(t, "samples", a.taken[image{matched, "two"}], used, a.skipped)
						return
					}
					if n := a.taken[image{matched, "two"}]; n > 0 && !early {
						t.Errorf("got %d samples of the excluded process", n)
					}
					if a.taken[image{other, "one"}] == 0 {
						t.Error("got no samples of the other process")
					}
					atLeast(t, "excluded samples", a.excluded, used, a.skipped)
				})
			}
		}
	}
}

// atLeast checks that there are enough samples for a CPU time. The process may have been interrupted for each.
func atLeast(t *testing.T, name string, samples int, used time.Duration, skipped int) {
	t.Helper()
	want := stat.Ticks(used, time.Second/frequency, 2*int(used*frequency/time.Second))
	// On an emulated machine, most are skipped.
	if low := max(want.Low-want.Low/20-skipped, 1); samples < low {
		t.Errorf("got %d %s, want %d or more for %v", samples, name, low, used)
	}
}

// A process that ends has no address space for a while. It still belongs to its program.
func TestEnds(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	path := program(t, "ends")
	m := measure(t, rules.Rules{Exclude: given(t, "program="+path)}, false)
	all := map[int]bool{}
	var used time.Duration
	times := 5
	if testenv.BriefInVM() {
		times = 1
	}
	for range times {
		cmd := run(t, path, "ends")
		all[cmd.Process.Pid] = true
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		m.poll(t)
	}
	a := m.finish(t)
	most := 0
	if testenv.Patience(1) > 1 {
		most = a.excluded / 100 // user space may be too slow to learn the program of a process that ends
	}
	for pid := range all {
		if n := a.taken[image{pid, "ends"}]; n > most {
			t.Errorf("got %d samples of an excluded process, want at most %d", n, most)
		}
	}
	if a.excluded == 0 {
		t.Errorf("got no excluded samples for %v of CPU time", used)
	}
}

// Waits of an excluded process are not measured, whether it began to wait before the measurement or is new.
func TestWaits(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	one := program(t, "one")
	two := filepath.Join(filepath.Dir(one), "two")
	if err := os.Link(one, two); err != nil {
		t.Fatal(err)
	}
	pids := map[string][]int{one: {run(t, one, "waits").Process.Pid}, two: {run(t, two, "waits").Process.Pid}}
	m := start(t, rules.Rules{Exclude: given(t, "program="+two)}, false, func(o probe.Options) (source.Source, error) {
		return offcpu.Load(o, offcpu.Config{PendingEntries: offcpu.DefaultPendingEntries, States: offcpu.AllStates})
	})
	for path := range pids {
		pids[path] = append(pids[path], run(t, path, "waits").Process.Pid)
	}
	testenv.Await(t, func() bool {
		m.poll(t)
		if err := m.Counts().Flip(); err != nil {
			t.Fatal(err)
		}
		waits := m.waits()
		return waits[image{pids[one][0], "one"}] > 0 && waits[image{pids[one][1], "one"}] > 0
	}, func() string { return fmt.Sprintf("got waits of %v, want some of %v", m.waits(), pids[one]) })
	m.stop(t)
	for _, pid := range pids[two] {
		if n := m.waits()[image{pid, "two"}]; n > 0 {
			t.Errorf("got %d waits of an excluded process", n)
		}
	}
}

// waits returns the numbers of waits.
func (m *measurement) waits() map[image]int {
	all := map[image]int{}
	for key, v := range m.Counts().Total() {
		if trace, ok := m.store.Trace(key.ID); ok && !(trace.Open && m.judge.Leaves(trace.Rules, trace.Owner)) {
			all[image{int(trace.PID), trace.Name()}] += int(v.Samples())
		}
	}
	return all
}

// Of a process with a lower rate, each sample stands for several: the sum of weights stays the same.
func TestSlower(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	one := program(t, "one")
	two := filepath.Join(filepath.Dir(one), "two")
	if err := os.Link(one, two); err != nil {
		t.Fatal(err)
	}
	const rate, oneIn = 100, 10
	slower, err := rules.ParseSlower(fmt.Sprintf("%d:program=%s", rate, two))
	if err != nil {
		t.Fatal(err)
	}
	other, slow := stopped(t, one, "spin").Process.Pid, stopped(t, two, "spin").Process.Pid
	m := measure(t, rules.Rules{Slower: []rules.Slower{slower}}, false)
	before := cpuTime(t, slow)
	for _, pid := range []int{other, slow} {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		m.while(t, pid, 300*time.Millisecond)
		if err := unwindtest.Stop(pid); err != nil {
			t.Fatal(err)
		}
	}
	used := cpuTime(t, slow) - before
	a := m.finish(t)
	taken := a.taken[image{slow, "two"}]
	if all := taken + a.thinned; taken*oneIn > all || all >= (taken+runtime.NumCPU())*oneIn {
		t.Errorf("got %d samples, and %d that they stand for; want one in %d", taken, a.thinned, oneIn)
	}
	const period = uint64(time.Second / frequency)
	if w := a.weight[image{slow, "two"}]; w != uint64(taken*oneIn)*period {
		t.Errorf("got the weight %d of %d samples, want %d", w, taken, uint64(taken*oneIn)*period)
	}
	atLeast(t, "samples, with those that others stand for", taken+a.thinned, used, a.skipped)
	if n := uint64(a.taken[image{other, "one"}]); n == 0 || a.weight[image{other, "one"}] != n*period {
		t.Errorf("got the weight %d of %d samples of the other process", a.weight[image{other, "one"}], n)
	}
}

// Processes are measured from an age on.
func TestMinAge(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	path := program(t, "young")
	for age, taken := range map[time.Duration]bool{time.Nanosecond: true, 1000 * time.Hour: false} {
		t.Run(age.String(), func(t *testing.T) {
			m := measure(t, rules.Rules{MinAge: age}, false)
			pid := run(t, path, "spin").Process.Pid
			m.while(t, pid, 100*time.Millisecond)
			a := m.finish(t)
			if n := a.taken[image{pid, "young"}]; (n > 0) != taken || (a.excluded > 0) == taken {
				t.Errorf("got %d samples of the process, and %d excluded ones; want some: %v", n, a.excluded, taken)
			}
		})
	}
}

// In a PID namespace, rules work as outside.
func TestRulesInPIDNamespace(t *testing.T) {
	testenv.InPIDNamespace(t, "^(TestRules|TestEnds|TestWaits|TestMinAge|TestSlower)$")
}

// testCgroup is a cgroup of version 2.
type testCgroup struct {
	dir  *os.File
	path string // in its hierarchy
}

func cgroup(t *testing.T) testCgroup {
	t.Helper()
	mounted, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounted {
		if m.FSType != "cgroup2" || m.Root != "/" {
			continue
		}
		dir, err := os.MkdirTemp(m.Mountpoint, "fulgur-rules-") //nolint:usetesting // a cgroup
		if err != nil {
			testenv.Skip(t, "needs cgroups to be writable: %v", err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return testCgroup{f, "/" + filepath.Base(dir)}
	}
	testenv.Unsupported(t, "no cgroups of version 2 are mounted")
	return testCgroup{}
}
