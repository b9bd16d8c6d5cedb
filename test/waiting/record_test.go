package waiting

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/testenv"
)

// recorded is a recording of a workload, with its totals.
type recorded struct {
	measured
	*firefoxtest.Profile
}

// record runs a workload under a command of fulgur that writes a recording, and checks
// the recording.
func record(t *testing.T, mode string, args ...string) recorded {
	t.Helper()
	dir := t.TempDir()
	out, sums := filepath.Join(dir, "out.json.gz"), filepath.Join(dir, "sums.pb.gz")
	r := recorded{measured: run(t, mode, out, args...)}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r.Profile = firefoxtest.Check(t, b)
	if report, err := testenv.Command(t, program(t), "convert", "-q", "-o", sums, out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	r.profile = readProfile(t, sums)
	return r
}

// thread returns the thread that took a name. Its children inherit the name.
func (r recorded) thread(t *testing.T, name string) firefoxtest.Thread {
	t.Helper()
	i := slices.IndexFunc(r.Threads, func(k firefoxtest.Thread) bool {
		return slices.ContainsFunc(r.markers(t, k, "Renamed"), func(m marker) bool { return r.Shared.StringArray[m.Name] == name })
	})
	if i < 0 {
		t.Fatalf("no thread took the name %s\n%s", name, r.stderr)
	}
	return r.Threads[i]
}

// ofThread adds up a value of a thread.
func (r recorded) ofThread(t *testing.T, value string, k firefoxtest.Thread) (sum int64) {
	t.Helper()
	index := slices.IndexFunc(r.profile.SampleType, func(v *pprof.ValueType) bool { return v.Type == value })
	if index < 0 {
		t.Fatalf("no value %s in %v", value, r.profile.SampleType)
	}
	for _, s := range r.profile.Sample {
		if tid := s.NumLabel["tid"]; len(tid) > 0 && k.TID == float64(tid[0]) {
			sum += s.Value[index]
		}
	}
	return sum
}

// marker describes a marker. Names are indexes.
type marker struct {
	Type       string
	Bytes      int64
	Kind, File *int
	Op, Name   int
	Cause      *struct{ Stack int }
}

func (r recorded) markers(t *testing.T, k firefoxtest.Thread, kind string) (all []marker) {
	t.Helper()
	if err := json.Unmarshal(k.Markers["data"], &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m marker) bool { return m.Type != kind })
}

// A thread's waits are on its timeline, with their duration and without CPU time; so
// are its earlier names.
func TestRecordedSleeps(t *testing.T) {
	testenv.EveryKernel(t)
	for _, command := range [][]string{{"record"}, {"offcpu"}, {"profile", "--wall", "-F", "999"}} {
		t.Run(command[0], func(t *testing.T) {
			if command[0] != "record" {
				testenv.SlowInVM(t)
			}
			r := record(t, "sleeps", command...)
			r.check(t, "off-cpu", "sleeper", r.truth.Slept, "[off-CPU: sleep]")
			k := r.thread(t, "sleeper")
			// From the first sample to the last, it is either on or off the CPU.
			used, off := int64(total(t, k.Samples, "threadCPUDelta")), r.ofThread(t, "off-cpu", k)
			if span := int64(1e6 * total(t, k.Samples, "timeDeltas")); used+off > span+r.slack() || used > span-r.truth.Slept+r.truth.CPU["sleeper"]+slack {
				t.Errorf("got %d ns on the CPU and %d off it, want %d together\n%s", used, off, span, r.stderr)
			}
			if n := len(r.markers(t, k, "OffCpu")); int64(n)+r.missed() < r.truth.Times {
				t.Errorf("got %d markers, want one for each of %d sleeps", n, r.truth.Times)
			}
		})
	}
}

// A request is a marker on the thread that made it.
func TestRecordedRequests(t *testing.T) {
	disk(t)
	for _, command := range []string{"record", "blockio"} {
		t.Run(command, func(t *testing.T) {
			if command != "record" {
				testenv.SlowInVM(t)
			}
			r := record(t, "read", command)
			each := r.truth.Bytes / r.truth.Times
			differ := func(bytes int64) bool {
				return bytes%each != 0 || bytes > r.truth.Bytes || bytes+r.skipped()*each < r.truth.Bytes
			}
			if got := r.sum(t, "block-io", "", "fulgur/test/waiting.direct.func1"); differ(got) {
				t.Errorf("got %d bytes of requests, want %d\n%s", got, r.truth.Bytes, r.stderr)
			}
			var bytes, requests int64
			for _, m := range r.markers(t, r.thread(t, "direct"), "BlockIO") {
				op := r.Shared.StringArray[m.Op]
				if (strings.HasPrefix(op, "read sync") || onDevice() && op == "read") && m.Cause != nil {
					bytes += m.Bytes
					requests++
				}
			}
			if differ(bytes) || bytes != requests*each {
				t.Errorf("got %d markers of %d bytes, want %d of %d\n%s", requests, bytes, r.truth.Times, r.truth.Bytes, r.stderr)
			}
			i := slices.IndexFunc(r.Counters, func(c firefoxtest.Counter) bool { return *c.Name == "Disk read" })
			if i < 0 {
				t.Fatalf("no counter of bytes read")
			}
			if read := total(t, r.Counters[i].Samples, "count"); read < float64(bytes) {
				t.Errorf("counter of bytes read = %v, want %d", read, bytes)
			}
		})
	}
}

// ownFaults is the maximum number of additional faults in the function that touches
// pages: faults of its code, around which the kernel maps only cached pages.
const ownFaults = 100

// A page fault is a marker on the thread that touched the page.
func TestRecordedFaults(t *testing.T) {
	for _, command := range []string{"record", "faults"} {
		t.Run(command, func(t *testing.T) {
			r := record(t, "touch", command)
			var mapped, major int64
			for _, m := range r.markers(t, r.thread(t, "toucher"), "PageFault") {
				if m.File == nil || r.Shared.StringArray[*m.File] != r.truth.File {
					continue
				}
				mapped++
				if r.Shared.StringArray[*m.Kind] == "major" {
					major++
				}
			}
			// The sums of a recording have the name of the process, not of the thread.
			without := r.skipped() + r.sum(t, "faults", "", "[unknown page]", "fulgur/test/waiting.touchPages")
			differ := func(got, want int64) bool { return got > want || got+without < want }
			if differ(mapped, r.truth.Mapped) || differ(major, r.truth.Major) {
				t.Errorf("got %d faults of the file, %d of them major, want %d and %d\n%s", mapped, major, r.truth.Mapped, r.truth.Major, r.stderr)
			}
			want := r.truth.Mapped + r.truth.Anonymous
			if got := r.sum(t, "faults", "", "fulgur/test/waiting.touch.func1"); got+r.skipped() < want || got > want+ownFaults {
				t.Errorf("got %d faults in the function that touches pages, want %d\n%s", got, want, r.stderr)
			}
		})
	}
}

// A recording that the kernel adds up has the same values.
func TestRecordedSums(t *testing.T) {
	m := measure(t, "sleeps", "record")
	m.check(t, "off-cpu", "sleeper", m.truth.Slept, "[sleep]")
	for _, value := range []string{"samples", "cpu", "faults"} {
		if m.sum(t, value, "", "") == 0 {
			t.Errorf("got no %s, want some\n%s", value, m.stderr)
		}
	}
	m = measure(t, "touch", "record", "--no-cpu", "--no-offcpu", "--no-blockio")
	if got, want := m.sum(t, "faults", "toucher", "fulgur/test/waiting.touch.func1"), m.truth.Mapped+m.truth.Anonymous; got+m.skipped() < want || got > want+ownFaults {
		t.Errorf("got %d faults, want %d\n%s", got, want, m.stderr)
	}
	if n := len(m.profile.SampleType); n != 2 {
		t.Errorf("got %d values, want 2: the recording has faults only", n)
	}
}

// total adds up a column.
func total(t *testing.T, k firefoxtest.Table, name string) (sum float64) {
	t.Helper()
	column, err := k.Numbers(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range column {
		sum += n
	}
	return sum
}

// An interrupted recording is complete.
func TestInterruptedRecording(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.json.gz")
	cmd := testenv.Command(t, program(t), "record", "-o", out, "--", os.Args[0])
	cmd.Env = environment(t, "asleep")
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code of the command, which it ended, counts
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	recorded{Profile: firefoxtest.Check(t, b)}.thread(t, "sleeper")
}
