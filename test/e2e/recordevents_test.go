package e2e

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/testenv"
)

// hit is a marker of an event, with the texts of its fields by name.
type hit struct {
	fields map[string]string
	stack  bool
}

// hitsOf returns the markers of a recording by the name of the event.
func hitsOf(t *testing.T, p *firefoxtest.Profile) map[string][]hit {
	t.Helper()
	labels := map[string]map[string]string{}
	for _, s := range p.Meta.MarkerSchema {
		labels[s.Name] = map[string]string{}
		for _, f := range s.Fields {
			labels[s.Name][f.Key] = f.Label
		}
	}
	all := map[string][]hit{}
	for _, k := range p.Threads {
		var markers []map[string]any
		if err := json.Unmarshal(k.Markers["data"], &markers); err != nil {
			t.Fatal(err)
		}
		for _, m := range markers {
			h := hit{fields: map[string]string{}}
			name, _ := m["type"].(string)
			_, h.stack = m["cause"]
			for key, label := range labels[name] {
				h.fields[label], _ = m[key].(string)
			}
			all[name] = append(all[name], h)
		}
	}
	return all
}

// Each hit of an event is a marker with its stack and fields, as often as the program counts
// it.
func TestRecordEvents(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.json.gz")
	args := []string{"record", "-o", out, "--no-cpu", "--no-offcpu", "--no-blockio", "--no-faults"}
	for _, e := range []string{
		"uprobe:" + events + ":work", "uretprobe:" + events + ":work", "usdt:" + events + ":fulgur:tick",
		"syscalls:sys_enter_writ?", "syscalls:sys_enter_openat", "task:task_rename",
	} {
		args = append(args, "-e", e)
	}
	r := fulgur(t, append(args, "--", events)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	got, own := hitsOf(t, readRecording(t, out)), numbers(t, r.stdout)
	for _, test := range []struct {
		name   string
		fields map[string]string // of the hits to count
		sum    string            // field to sum
		want   int
	}{
		{"uprobe:work", nil, "", own["calls"]},
		{"uretprobe:work", nil, "retval", own["returns"]},
		{"usdt:fulgur:tick", nil, "arg0", own["tick_sum"]},
		{"usdt:fulgur:tick", map[string]string{"arg1": "1", "arg2": "7"}, "", own["odd"]},
		{"syscalls:sys_enter_write", map[string]string{"fd": "77"}, "count", own["written"]},
		{"syscalls:sys_enter_openat", map[string]string{"filename": "/nonexistent/fulgur", "dfd": "-100"}, "", own["opens"]},
		{"task:task_rename", map[string]string{"newcomm": "renamed"}, "", own["renames"]},
	} {
		n := 0
		for _, h := range got[test.name] {
			wanted := true
			for name, value := range test.fields {
				wanted = wanted && h.fields[name] == value
			}
			if !wanted {
				continue
			}
			add := 1
			if test.sum != "" {
				var err error
				if add, err = strconv.Atoi(h.fields[test.sum]); err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
			}
			n += add
			if !h.stack {
				t.Errorf("%s: a hit has no stack", test.name)
			}
		}
		most := 1
		if test.sum == "count" {
			most = own["written"] / own["writes"]
		}
		if want := hits(test.want, most, r.stderr); !want.Has(n) || n == 0 {
			t.Errorf("%s %v: got %d, want %s\n%s", test.name, test.fields, n, want, r.stderr)
		}
	}
	// The recording has the same totals in other formats.
	folded := filepath.Join(t.TempDir(), "out.folded")
	if c := fulgur(t, "convert", "--value", "uprobe:"+events+":work", "-o", folded, out); c.code != 0 || sum(readFolded(t, folded)) != own["calls"] {
		t.Errorf("got %d calls after conversion, want %d: %s", sum(readFolded(t, folded)), own["calls"], c.stderr)
	}
	for line := range strings.Lines(r.stderr) {
		// Records of mappings get lost while other processes map much code.
		lost := strings.Contains(line, " lost ") && !strings.Contains(line, "mapping record")
		if lost || strings.Contains(line, "above the limit") {
			t.Errorf("hits are missing: %s", r.stderr)
		}
	}
}

// The hits of many system calls have the names and the fields of their own tracepoints.
func TestRecordSyscalls(t *testing.T) {
	testenv.Root(t)
	needCookies(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.json.gz")
	r := fulgur(t, "record", "-o", out, "--no-cpu", "--no-offcpu", "--no-blockio", "--no-faults", "-e", "syscalls:*", "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	own, written, opens := numbers(t, r.stdout), 0, 0
	got := hitsOf(t, readRecording(t, out))
	for _, h := range got["syscalls:sys_enter_write"] {
		if h.fields["fd"] == "77" && h.fields["count"] == "4097" {
			written += 4097
		}
	}
	for _, h := range got["syscalls:sys_enter_openat"] {
		if h.fields["dfd"] == "-100" && h.fields["filename"] == "/nonexistent/fulgur" {
			opens++
		}
	}
	failed := 0
	for _, h := range got["syscalls:sys_exit_openat"] {
		if h.fields["ret"] == "-2" {
			failed++
		}
	}
	wantOpens, wantWritten := hits(own["opens"], 1, r.stderr), hits(own["written"], 4097, r.stderr)
	if !wantOpens.Has(opens) || !wantWritten.Has(written) || failed < wantOpens.Low || opens == 0 || written == 0 {
		t.Errorf("got %d opens, %d failures and %d bytes, want %s opens and %s bytes\n%s",
			opens, failed, written, wantOpens, wantWritten, r.stderr)
	}
}

// Shell completion finds the functions and USDT probes of a file.
func TestCompleteEvents(t *testing.T) {
	before := compile(t, "events.c", "events") + ":"
	for word, want := range map[string]string{
		"uprobe:" + before + "caller_": "uprobe:" + before + "caller_one\nuprobe:" + before + "caller_two\n",
		"usdt:" + before + "f":         "usdt:" + before + "fulgur:step\nusdt:" + before + "fulgur:tick\n",
		"usdt:" + before + "fulgur:ti": "usdt:" + before + "fulgur:tick\n",
		"usdt:" + before + "other":     "",
	} {
		if r := fulgur(t, "complete", "--", "count", "-e", word); r.stdout != "word\t\n"+want || r.stderr != "" {
			t.Errorf("%s: got %q and %q, want %q", word, r.stdout, r.stderr, want)
		}
	}
}

// Functions of the kernel are shown with their arguments, which have the names in the
// source.
func TestRecordKprobes(t *testing.T) {
	testenv.Root(t)
	if !hasKprobes(t) {
		testenv.Unsupported(t, "the kernel has no kprobes")
	}
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.json.gz")
	r := fulgur(t, "record", "-o", out, "--no-cpu", "--no-offcpu", "--no-blockio", "--no-faults", "-e", "kprobe:vfs_write", "-e", "kretprobe:vfs_write", "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	got, own := hitsOf(t, readRecording(t, out)), numbers(t, r.stdout)
	for name, field := range map[string]string{"kprobe:vfs_write": "count", "kretprobe:vfs_write": "retval"} {
		n := 0
		for _, h := range got[name] {
			if h.fields[field] == "4097" {
				n++
			}
		}
		if want := hits(own["writes"], 1, r.stderr); !want.Has(n) || n == 0 {
			t.Errorf("%s: got %d hits with %s of 4097, want %s\n%s", name, n, field, want, r.stderr)
		}
	}
}

// Without times, each event is a value.
func TestRecordEventSums(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.folded")
	event := "uprobe:" + events + ":caller_*"
	r := fulgur(t, "record", "-o", out, "--no-offcpu", "--no-blockio", "--no-faults", "--value", event, "-e", "task:task_rename", "-e", event, "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if got, want := sum(readFolded(t, out)), numbers(t, r.stdout)["callers"]; got != want {
		t.Errorf("got %d hits, want %d\n%s", got, want, r.stderr)
	}
}

// The summary shows hits above the limit, and the condition is evaluated in the kernel.
func TestRecordEventsPace(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.json.gz")
	r := fulgur(t, "record", "-o", out, "--no-offcpu", "--no-blockio", "--no-faults", "-e", "uprobe:"+events+":tick", "--filter", "arg0 == 3", "--max-rate", "2", "--", events)
	limited := regexp.MustCompile(`(\d+) hits? above the limit`).FindStringSubmatch(r.stderr)
	if r.code != 0 || limited == nil {
		t.Fatalf("exit code %d, want 0 and hits above the limit: %s", r.code, r.stderr)
	}
	n, err := strconv.Atoi(limited[1])
	threes := 0
	for i := range numbers(t, r.stdout)["ticks"] {
		if i%11 == 3 {
			threes++
		}
	}
	if got := len(hitsOf(t, readRecording(t, out))["uprobe:tick"]); err != nil || got+n != threes || got == 0 {
		t.Errorf("got %d hits and %d above the limit, want %d in all\n%s", got, n, threes, r.stderr)
	}
	for flag, value := range map[string]string{"--filter": "fd == 1", "--max-rate": "5", "--max-probes": "5"} {
		if r := fulgur(t, "record", flag, value, "1"); r.code != 2 || !strings.Contains(r.stderr, "--event") {
			t.Errorf("%s without an event: got code %d, %q, want 2 and --event", flag, r.code, r.stderr)
		}
	}
}
