// Package bolt tests fulgur bolt with prepared branch records in the rig's PMU: the
// profile must equal a count of the same records one by one.
package bolt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// workloadVar, set to a number of threads, makes the test binary a workload.
const workloadVar = "BOLT_WORKLOAD"

func TestMain(m *testing.M) {
	if threads, err := strconv.Atoi(os.Getenv(workloadVar)); err == nil {
		_, _ = io.ReadAll(os.Stdin) // until standard input is closed
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

// workload is a process that waits until its standard input is closed.
type workload struct {
	pid   int
	letGo func()
}

// threads starts the test binary, which is linked for a fixed address, as a process with
// that many threads.
func threads(t *testing.T, n int) workload {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workloadVar+"="+strconv.Itoa(n))
	return start(t, cmd)
}

// start starts a process that waits for the end of its standard input, and kills it when
// the test ends.
func start(t *testing.T, cmd *exec.Cmd) workload {
	t.Helper()
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
	return workload{cmd.Process.Pid, func() { _ = stdin.Close() }}
}

// until waits until a condition is true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	testenv.Await(t, is, func() string { return "waited for " + what })
}

// run is a running fulgur bolt.
type run struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// begin starts fulgur bolt, waits until it samples, and lets processes run.
func begin(t *testing.T, workloads []workload, args ...string) *run {
	t.Helper()
	r := &run{cmd: testenv.Command(t, testenv.Program(t, "fulgur/cmd/fulgur", t.TempDir()), append([]string{"bolt", "--llvm", "22", "--stats", "json", "-f", "2000"}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "events on all CPUs", func() bool { return status(t).Events >= runtime.NumCPU() })
	for _, w := range workloads {
		w.letGo()
	}
	return r
}

func status(t *testing.T) pmu.Status {
	t.Helper()
	s, err := pmu.ReadStatus()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// report holds the fields of the summary that the tests check.
type report struct {
	Samples uint64 `json:"samples"`
	Lost    []struct {
		Cause string `json:"cause"`
		Count uint64 `json:"count"`
	} `json:"lost"`
	Binaries []struct {
		Binary  string `json:"binary"`
		Profile string `json:"profile"`
	} `json:"binaries"`
}

// end waits until the PMU has no more windows, then until fulgur exits.
func (r *run) end(t *testing.T) report {
	t.Helper()
	until(t, "samples to take all windows", func() bool { return !status(t).Left() })
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("fulgur bolt: %v\n%s", err, &r.stderr)
	}
	var rep report
	if err := json.Unmarshal(r.stderr.Bytes(), &rep); err != nil {
		t.Fatalf("summary: %v\n%s", err, &r.stderr)
	}
	t.Logf("%+v", rep)
	return rep
}

// oracle counts the prepared records of one binary.
type oracle struct {
	binary    *bolt.Binary
	code      *bolt.Code
	collector *bolt.Collector
}

func newOracle(t *testing.T, path string, strict bool) oracle {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	b, err := bolt.NewBinary(f)
	if err != nil {
		t.Fatal(err)
	}
	c := bolt.NewCollector(bolt.Options{Strict: strict})
	t.Cleanup(c.Close)
	c.Register(b)
	return oracle{b, bolt.NewCode(f), c}
}

// prepare gives the PMU windows for a process that runs the binary, and counts their
// records.
func (o oracle) prepare(t *testing.T, pid, windows, window int) {
	t.Helper()
	var layout bolt.Layout
	var code bolt.Region
	until(t, "a process that maps "+o.binary.Name, func() bool {
		maps, err := procfs.Process(pid).Maps()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.Name != o.binary.Name {
				continue
			}
			if r, ok := o.binary.Region(m.Start, m.Limit-m.Start, m.Offset); ok {
				layout = layout.With(r)
				code = r
			}
		}
		return layout.Len() > 0
	})
	q := pmu.Queue{PID: pid, Window: window, Records: walk(pid, windows*window, o.branches(t, code), code.Start, min(code.End, code.Start+4096))}
	for chunk := range slices.Chunk(q.Records, window) {
		stack := make([]bolt.Entry, len(chunk))
		for i, r := range chunk {
			stack[i] = bolt.Entry(r)
		}
		if err := o.collector.Add(layout, stack); err != nil {
			t.Fatal(err)
		}
	}
	if err := pmu.Add(q); err != nil {
		t.Fatal(err)
	}
}

// branches returns the addresses of branches in the first page of a process's code: fulgur
// refuses records that begin elsewhere.
func (o oracle) branches(t *testing.T, code bolt.Region) (all []uint64) {
	t.Helper()
	for addr := code.Start; addr < min(code.End, code.Start+4096); addr += 16 {
		at := code.Address(addr)
		one := func(yield func(bolt.Trace, error) bool) { yield(bolt.Trace{From: at, To: at, Count: 100}, nil) }
		if at != 0 && o.code.Verify(o.binary, one) == nil {
			all = append(all, addr)
		}
	}
	if len(all) < 2 {
		t.Fatalf("got %d branches in the code of %s, want some", len(all), o.binary.Name)
	}
	return all
}

// walk makes random records from branches to addresses of a process's code. A few are in the
// kernel or elsewhere, on a wrong path, of an aborted transaction, or empty.
func walk(seed, n int, branches []uint64, start, limit uint64) []pmu.Record {
	const kernel, elsewhere = 0xffffffff81000000, 0x10000
	state := uint64(seed)
	random := func(n uint64) uint64 {
		state = state*6364136223846793005 + 1442695040888963407
		return state >> 33 % n
	}
	in := func() uint64 { return start + random((limit-start)/64)*64 }
	records := make([]pmu.Record, n)
	for i := range records {
		r := pmu.Record{From: branches[random(uint64(len(branches)))], To: in(), Flags: bolt.FlagPredicted}
		switch random(20) {
		case 0:
			r.To = kernel + random(100)
		case 1:
			r.From = kernel + random(100)
		case 2:
			r.From = elsewhere
		case 3:
			r.To = elsewhere
		case 4, 5:
			r.Flags = bolt.FlagMispredicted
		case 6:
			r.Flags |= bolt.FlagWrongPath
		case 7:
			r.Flags |= bolt.FlagAbort
		case 8:
			if i%7 == 0 {
				r = pmu.Record{}
			}
		}
		records[i] = r
	}
	return records
}

// want returns the profile of the prepared records.
func (o oracle) want(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	err := o.collector.Each(func(_ *bolt.Binary, traces iter.Seq2[bolt.Trace, error]) error {
		return bolt.WriteTraces(&out, traces)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// check compares a profile with the profile of the prepared records.
func (o oracle) check(t *testing.T, got string) {
	t.Helper()
	if want := o.want(t); got != want {
		t.Errorf("the profile of %s has %d lines, want %d, and they differ: %s", o.binary.Name,
			strings.Count(got, "\n"), strings.Count(want, "\n"), firstDifference(got, want))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is %q, want %q", i+1, g[i], w[i])
		}
	}
	return "one is longer"
}

// All threads of processes with a fixed address, in windows of all sizes, by interrupt
// and by NMI, with and without --strict.
func TestThreads(t *testing.T) {
	for _, test := range []struct {
		nmi    bool
		window int
		strict bool
	}{{false, 32, false}, {true, 16, false}, {true, 32, true}, {true, 64, false}} {
		t.Run(fmt.Sprintf("nmi=%v/%d", test.nmi, test.window), func(t *testing.T) {
			pmu.Load(t, pmu.Options{NMI: test.nmi, Depth: test.window})
			o := newOracle(t, os.Args[0], test.strict)
			one, three, other := threads(t, 1), threads(t, 3), threads(t, 1)
			o.prepare(t, one.pid, 200, test.window)
			o.prepare(t, three.pid, 200, test.window)
			if err := pmu.Add(pmu.Queue{PID: other.pid, Window: 1, Records: []pmu.Record{{From: 1, To: 2}}}); err != nil {
				t.Fatal(err)
			}
			args := []string{"-p", fmt.Sprintf("%d,%d", one.pid, three.pid), "600"}
			if test.strict {
				args = append(args, "--strict")
			}
			r := begin(t, []workload{one, three, other}, args...)
			if rep := r.end(t); rep.Samples != 400 {
				t.Errorf("got %d samples, want 400", rep.Samples)
			}
			o.check(t, r.stdout.String())
		})
	}
}

// Several processes of one position-independent binary, each at its own address, and a
// child that one of them forks while it is sampled.
func TestForks(t *testing.T) {
	pmu.Load(t, pmu.Options{NMI: true})
	path := writePIE(t, t.TempDir())
	o := newOracle(t, path, false)
	workloads := []workload{start(t, exec.Command(path)), start(t, exec.Command(path))}
	pids := []int{workloads[0].pid, workloads[1].pid}
	for _, pid := range pids {
		o.prepare(t, pid, 100, 32)
	}
	r := begin(t, workloads, "-p", fmt.Sprintf("%d,%d", pids[0], pids[1]), "--children", "600")
	for _, pid := range pids {
		var child int
		until(t, "a child", func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
			if err != nil {
				t.Fatal(err)
			}
			child, err = strconv.Atoi(strings.TrimSpace(string(b)))
			return err == nil
		})
		o.prepare(t, child, 100, 32)
		t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	}
	if rep := r.end(t); rep.Samples != 400 {
		t.Errorf("got %d samples, want 400", rep.Samples)
	}
	o.check(t, r.stdout.String())
}

// Profiles of each binary that a process maps, and of a chosen binary, on the whole
// system.
func TestBinaries(t *testing.T) {
	testenv.SlowInVM(t)
	pmu.Load(t, pmu.Options{})
	dir := t.TempDir()
	path := writePIE(t, dir)
	pie, fixed := start(t, exec.Command(path)), threads(t, 1)
	for _, args := range [][]string{
		{"--all-binaries", "-o", filepath.Join(dir, "profiles"), "600"},
		{"--binary", path, "-o", filepath.Join(dir, "one.preagg"), "600"},
	} {
		t.Run(args[0], func(t *testing.T) {
			pmu.Load(t, pmu.Options{})
			one, two := newOracle(t, path, false), newOracle(t, os.Args[0], false)
			one.prepare(t, pie.pid, 100, 32)
			two.prepare(t, fixed.pid, 100, 32)
			r := begin(t, []workload{pie, fixed}, args...)
			rep := r.end(t)
			for _, b := range rep.Binaries {
				profile, err := os.ReadFile(b.Profile)
				if err != nil {
					t.Fatal(err)
				}
				if b.Binary == path {
					one.check(t, string(profile))
				} else {
					two.check(t, string(profile))
				}
			}
			if want := 2 - len(args)/5; len(rep.Binaries) != want {
				t.Errorf("got %d profiles, want %d\n%s", len(rep.Binaries), want, &r.stderr)
			}
		})
	}
}

// Samples that a tiny ring loses are counted.
func TestLost(t *testing.T) {
	pmu.Load(t, pmu.Options{NMI: true})
	o := newOracle(t, os.Args[0], false)
	w := threads(t, 1)
	o.prepare(t, w.pid, 500, 64)
	rep := begin(t, []workload{w}, "-p", strconv.Itoa(w.pid), "--ring-size", "4096", "600").end(t)
	var lost uint64
	for _, l := range rep.Lost {
		if strings.Contains(l.Cause, "ring was full") {
			lost = l.Count
		}
	}
	if lost == 0 || lost+rep.Samples != 500 {
		t.Errorf("got %d samples and %d lost, want 500 together", rep.Samples, lost)
	}
}

// The on-CPU profile samples hardware cycles by NMI.
func TestCycles(t *testing.T) {
	testenv.SlowInVM(t)
	pmu.Load(t, pmu.Options{NMI: true})
	w := threads(t, 2)
	w.letGo()
	fulgur := testenv.Program(t, "fulgur/cmd/fulgur", t.TempDir())
	out, err := exec.Command(fulgur, "profile", "-p", strconv.Itoa(w.pid), "-f", "3").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s, err := pmu.ReadStatus()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v\n%s", s, out)
	if s.NMIs == 0 || !strings.Contains(string(out), "bolt.spin") || !strings.Contains(string(out), "cycles") {
		t.Errorf("status = %+v, want NMIs, and cycles in bolt.spin in:\n%s", s, out)
	}
}
