package trigger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

func mustParse(t *testing.T, text string) *Trigger {
	t.Helper()
	parsed, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text, name, of, until string
		limit                 int64
		hold                  time.Duration
	}{
		{"signal", "signal", "", "", 0, look},
		{"wait>2s", "wait", "", "", 2e9, look},
		{"runq>100us", "runq", "", "", 1e5, look},
		{"latency:uprobe:/bin/a:f>50ms", "latency", "uprobe:/bin/a:f", "", 5e7, look},
		{"latency:usdt:/a:p:begin..usdt:/a:p:end>1.5s", "latency", "usdt:/a:p:begin", "usdt:/a:p:end", 15e8, look},
		{"latency:uprobe:/bin/a:operator>>5ms", "latency", "uprobe:/bin/a:operator>", "", 5e6, look},
		{"cpu>90%", "cpu", "", "", 900, look},
		{"cpu>150% for 10s", "cpu", "", "", 1500, 10 * time.Second},
		{"memory>2G", "memory", "", "", 2 << 30, look},
		{"psi:memory>0.5%", "psi", "memory", "", 5, look},
		{"command:/bin/test a > b", "command", "/bin/test a > b", "", 0, look},
	} {
		got := mustParse(t, test.text)
		if got.Name != test.name || got.of != test.of || got.until != test.until || got.limit != test.limit || got.hold != test.hold || got.Text != test.text {
			t.Errorf("%s: got %+v, want %+v", test.text, got, test)
		}
	}
	for _, text := range []string{
		"", "explode", "wait", "wait>", "wait>2", "wait>-2s", "wait>0s", "wait:x>2s", "signal>2s", "cpu>", "cpu>0%", "cpu>much", "memory>0", "memory>9999999T",
		"psi>10%", "psi:disk>10%", "psi:>10%", "latency>1s", "latency:f", "command", "command:", "command: ", "runq>5ms for 2s", "cpu>5% for ever", ">", ":", "wait>1s>2s",
	} {
		if got, err := Parse(text); !errors.Is(err, usage.Err) {
			t.Errorf("%q: got %+v and error %v, want a usage error", text, got, err)
		}
	}
	if _, err := Parse("explode"); err == nil || !strings.Contains(err.Error(), "oom") {
		t.Errorf("got %v, want the triggers that exist", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, form := range Forms() {
		f.Add(form[0])
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if (err == nil) != (got != nil) {
			t.Fatalf("%q: got %v and %v", text, got, err)
		}
		if err == nil && (got.limit < 0 || got.hold < look || got.kind.unit != nil && got.limit == 0) {
			t.Errorf("%q: got %+v", text, got)
		}
	})
}

// setOf returns a set of triggers of the machine.
func setOf(t *testing.T, texts ...string) *Set {
	t.Helper()
	var all []*Trigger
	for _, text := range texts {
		all = append(all, mustParse(t, text))
	}
	s, err := New(all, Host{Target: target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A wait counts once, in its full length, however often it was split. A wait in progress does not fire.
func TestSplitWaits(t *testing.T) {
	s := setOf(t, "wait>1s")
	const thread = 1 << 22
	piece := func(from, to int64, woken bool) {
		w := Wait{PID: thread, TID: thread, OffCPU: profile.OffCPU{Start: from, Duration: to - from, State: profile.StateSleeping}}
		if woken {
			w.Waker = profile.Task{PID: 1, TID: 1}
		}
		s.OffCPU(w)
	}
	second := int64(time.Second)
	for i := range int64(4) {
		end := (i + 1) * second * 2 / 5
		s.Cut(end)
		piece(i*second*2/5, end, false)
	}
	if got := s.Take(); len(got) > 0 {
		t.Fatalf("got %+v of a wait in progress", got)
	}
	piece(4*second*2/5, 2*second, true)
	got := s.Take()
	if len(got) != 1 || got[0].Begin != 0 || got[0].At != 2*second || got[0].Value != "2s" {
		t.Errorf("got %+v, want one wait of 2 s", got)
	}
	piece(3*second, 3*second+second/2, true)
	if got := s.Take(); len(got) > 0 {
		t.Errorf("got %+v of a short wait", got)
	}
}

func TestRunQueue(t *testing.T) {
	s := setOf(t, "runq>10ms", "wait>10ms")
	const thread = 1 << 22
	for _, w := range []profile.OffCPU{
		{Start: 0, Duration: 20e6, State: profile.StateRunnable},
		{Start: 50e6, Duration: 30e6, Runnable: 15e6, State: profile.StateSleeping},
		{Start: 90e6, Duration: 9e6, Runnable: 1e6, State: profile.StateSleeping},
	} {
		s.OffCPU(Wait{PID: thread, TID: thread, OffCPU: w})
	}
	var got []string
	for _, f := range s.Take() {
		got = append(got, f.Name+" "+f.Value+" "+time.Duration(f.Begin).String())
	}
	if want := "runq 20ms 0s, runq 15ms 65ms, wait 15ms 50ms"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

// A limit fires once it has been exceeded for the time, and again only after the value was below.
func TestHeld(t *testing.T) {
	trigger := mustParse(t, "cpu>50% for 3s")
	w, err := openCPU(trigger, Host{})
	if err != nil {
		t.Fatal(err)
	}
	var got []bool
	for _, cpu := range []float64{0.2, 0.9, 0.9, 0.2, 0.9, 0.9, 0.9, 0.9, 0.2, 2, 2, 2} {
		_, fires := w.look(time.Second, time.Duration(cpu*float64(time.Second)))
		got = append(got, fires)
	}
	for i, fires := range got {
		if want := i == 6 || i == 11; fires != want {
			t.Errorf("look %d: got %v, want %v", i, fires, want)
		}
	}
}

func hit(name string, pid int, fields ...string) Marker {
	m := Marker{PID: pid, TID: pid, MarkerType: profile.MarkerType{Name: name}}
	for i := 0; i < len(fields); i += 2 {
		m.Fields = append(m.Fields, fields[i])
		m.Values = append(m.Values, fields[i+1])
	}
	return m
}

func TestEnds(t *testing.T) {
	own := os.Getpid()
	for _, test := range []struct {
		marker Marker
		want   string
	}{
		{hit(exitEvent, own, "error_code", "263"), "exit code 7"},
		{hit(exitEvent, own+1, "error_code", "7"), ""},
		{hit("tracepoint:"+deliverEvent, own, "sig", "15", "sa_handler", "0x0"), "exit SIGTERM"},
		{hit(deliverEvent, own, "sig", "11", "sa_handler", "0"), "exit SIGSEGV, crash SIGSEGV"},
		{hit(deliverEvent, own+1, "sig", "9", "sa_handler", "0"), "crash SIGKILL"},
		{hit(deliverEvent, own, "sig", "11", "sa_handler", "0x4000"), ""},
		{hit(deliverEvent, own, "sig", "17", "sa_handler", "0"), ""},
		{hit(deliverEvent, own, "sig", "?", "sa_handler", "?"), ""},
		{hit(victimEvent, own+1, "pid", "1"), ""},
		{hit("other:event", own), ""},
	} {
		s := setOf(t, "exit", "crash", "oom")
		s.Marker(test.marker)
		var got []string
		for _, f := range s.Take() {
			got = append(got, f.Name+" "+f.Value)
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s %q: got %q, want %s", test.marker.Name, test.marker.Values, got, test.want)
		}
	}
	s := setOf(t, "oom")
	s.watched[0].watch, _ = openOOM(s.watched[0].Trigger, Host{})
	s.Marker(hit(victimEvent, own, "pid", "7", "comm", "redis", "anon_rss", "2048"))
	if got := s.Take(); len(got) != 1 || got[0].Value != "killed process 7, comm redis, anon_rss 2048 kB" {
		t.Errorf("got %+v", got)
	}
}

// Firings that nobody takes do not grow without limit, but all count.
func TestFiringsAreBounded(t *testing.T) {
	s := setOf(t, "signal")
	for range 10_000 {
		s.Signal()
	}
	if got, n := len(s.Take()), s.Counts()["signal"]; got != maxFirings || n != 10_000 {
		t.Errorf("got %d firings and a count of %d, want %d and 10000", got, n, maxFirings)
	}
}

func TestParseStalled(t *testing.T) {
	const text = "some avg10=97.11 avg60=97.19 avg300=95.26 total=21655239193\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
	if got, err := parseStalled(text); err != nil || got != 21655239193*time.Microsecond {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "some", "full total=5\n", "some total=x\n"} {
		if got, err := parseStalled(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// What cannot work on a machine is refused with the reason.
func TestImpossible(t *testing.T) {
	for text, of := range map[string]target.Target{
		"exit":                  {Scope: target.System},
		"throttled":             {Scope: target.Cgroup, CgroupPath: t.TempDir()},
		"psi:cpu>1%":            {Scope: target.Cgroup, CgroupPath: t.TempDir()},
		"command:/no/such/file": {},
	} {
		if _, err := New([]*Trigger{mustParse(t, text)}, Host{Target: of}); !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), "cannot work here") {
			t.Errorf("%s: got %v, want a usage error", text, err)
		}
	}
}

// A throttled cgroup fires in each second in which its count grows.
func TestThrottled(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("usage_usec 5\nnr_periods 10\nnr_throttled 3\n")
	w, err := openThrottled(mustParse(t, "throttled"), Host{Target: target.Target{Scope: target.Cgroup, CgroupPath: dir}})
	if err != nil {
		t.Fatal(err)
	}
	if _, fires := w.look(time.Second, 0); fires {
		t.Error("got a firing of what was before")
	}
	write("nr_periods 20\nnr_throttled 8\n")
	if value, fires := w.look(time.Second, 0); !fires || value != "5 times in a second" {
		t.Errorf("got %v, %q", fires, value)
	}
	if _, fires := w.look(time.Second, 0); fires {
		t.Error("got a firing without a change")
	}
}

// A program fires when it exits with 0 after another code.
func TestCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "now")
	w, err := openCommand(mustParse(t, "command:test -e "+path), Host{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(want bool) {
		t.Helper()
		if _, fires := w.run(); fires != want {
			t.Errorf("got %v, want %v", fires, want)
		}
	}
	run(false)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(true)
	run(false)
}
