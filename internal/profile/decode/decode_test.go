package decode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/profile/runinfo"
	"fulgur/internal/profile/timeline/timelinetest"
	"fulgur/internal/testenv"
)

// fold returns value v of a profile as folded stacks, with annotations.
func fold(t testing.TB, p *profile.Profile, v int) string {
	t.Helper()
	var out strings.Builder
	if err := folded.Write(&out, p, folded.Options{Annotate: true, Value: v}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// encoded returns the output of write.
func encoded(t testing.TB, write func(io.Writer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// decoded decodes data, which must be in the given format.
func decoded(t testing.TB, data []byte, want Format) *profile.Profile {
	t.Helper()
	p, format, err := Read(t.Context(), bytes.NewReader(data), "input")
	if err != nil {
		t.Fatal(err)
	}
	if format != want {
		t.Errorf("got format %s, want %s", format, want)
	}
	return p
}

// Profiles that fulgur writes are read back with all values.
func TestRoundTrip(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(),
		"symbols": encodetest.Symbols(),
		"threads": encodetest.Threads(),
		"large":   encodetest.Large(500),
	} {
		t.Run(name, func(t *testing.T) {
			want := fold(t, p, 0)
			got := decoded(t, []byte(want), Folded)
			if diff := cmp.Diff(want, fold(t, got, 0)); diff != "" {
				t.Errorf("folded (-want +got):\n%s", diff)
			}

			got = decoded(t, encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }), Pprof)
			called := atCalls(p)
			for v := range p.ValueTypes {
				if diff := cmp.Diff(fold(t, called, v), fold(t, got, v)); diff != "" {
					t.Errorf("pprof, value %d (-want +got):\n%s", v, diff)
				}
			}
			if diff := cmp.Diff(addresses(called), addresses(got)); diff != "" {
				t.Errorf("pprof's addresses (-want +got):\n%s", diff)
			}

			got = decoded(t, encoded(t, func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) }), OTLP)
			fromJSON := decoded(t, encoded(t, func(w io.Writer) error { return otlp.WriteJSON(w, p, otlp.Options{}) }), OTLPJSON)
			if diff := cmp.Diff(got, fromJSON); diff != "" {
				t.Errorf("OTLP's JSON (-binary +JSON):\n%s", diff)
			}
			for v := range p.ValueTypes {
				if diff := cmp.Diff(fold(t, called, v), fold(t, got, v)); diff != "" {
					t.Errorf("OTLP, value %d (-want +got):\n%s", v, diff)
				}
			}
			if diff := cmp.Diff(addresses(called), addresses(got)); diff != "" {
				t.Errorf("OTLP's addresses (-want +got):\n%s", diff)
			}
			if got.Losses != p.Losses {
				t.Errorf("OTLP: got losses %v, want %v", got.Losses, p.Losses)
			}

			if name == "threads" {
				return // the format has no CPUs
			}
			got = decoded(t, encoded(t, func(w io.Writer) error { return firefox.WriteProfile(w, p, firefox.Options{}) }), Firefox)
			for v := range p.ValueTypes {
				if diff := cmp.Diff(fold(t, p, v), fold(t, got, v)); diff != "" {
					t.Errorf("Firefox, value %d (-want +got):\n%s", v, diff)
				}
			}
			if diff := cmp.Diff(addresses(called), addresses(got)); diff != "" {
				t.Errorf("Firefox's addresses (-want +got):\n%s", diff)
			}
		})
	}
}

// The value to show first is read back. For samples, it is no value if it is the default of the
// pprof format.
func TestReadValue(t *testing.T) {
	p := encodetest.Typical()
	last := p.ValueTypes[len(p.ValueTypes)-1].Type
	for value, want := range map[string]string{p.ValueTypes[0].Type: p.ValueTypes[0].Type, last: "", "": ""} {
		p.Meta.Value = value
		got := decoded(t, encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }), Pprof)
		if got.Meta.Value != want {
			t.Errorf("%q: got %q, want %q", value, got.Meta.Value, want)
		}
	}
	p.ValueTypes = slices.Clone(p.ValueTypes)
	p.ValueTypes[0].Type = "waits"
	for value, want := range map[string]string{last: last, "": "waits"} {
		p.Meta.Value = value
		got := decoded(t, encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }), Pprof)
		if got.Meta.Value != want {
			t.Errorf("without samples, %q: got %q, want %q", value, got.Meta.Value, want)
		}
	}
	// Of samples and waits, the time is the default, and so is elapsed time.
	for _, of := range []string{"wall", "elapsed"} {
		b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: of, Unit: "nanoseconds"})
		stack := b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "f"})}))
		b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: 1}), CPU: -1, Values: []int64{1, 1}})
		p = b.Profile(profile.Meta{Value: of}, profile.Losses{})
		got := decoded(t, encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }), Pprof)
		if got.Meta.Value != of {
			t.Errorf("got %q, want %s", got.Meta.Value, of)
		}
	}
}

// atCalls returns p with addresses inside call instructions, as both formats have.
// Firefox's format has return addresses in the names of frames without a name.
func atCalls(p *profile.Profile) *profile.Profile {
	called := *p
	called.Frames = slices.Clone(p.Frames)
	for i := range called.Frames {
		f := &called.Frames[i]
		f.Address, f.Return = f.Call(), false
	}
	return &called
}

// addresses returns the distinct addresses of named user frames.
func addresses(p *profile.Profile) (list []uint64) {
	for _, s := range p.Samples {
		for _, id := range p.AppendFrames(nil, s.Stack) {
			if f := p.Frames[id]; f.Kind == profile.KindUser && f.Function != 0 {
				list = append(list, f.Address)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// A recording with a timeline is read as its totals.
func TestReadRecording(t *testing.T) {
	line := timelinetest.Recording(t)
	p := decoded(t, encoded(t, func(w io.Writer) error { return firefox.Write(w, line, firefox.Options{}) }), Firefox)
	want := map[profile.ValueType]int64{
		{Type: "cpu", Unit: "nanoseconds"}:           7_000_000,
		{Type: "off-cpu", Unit: "nanoseconds"}:       20_300_001,
		{Type: "block-io", Unit: "bytes"}:            4608,
		{Type: "block-io-time", Unit: "nanoseconds"}: 46_000_000,
		{Type: "faults", Unit: "count"}:              2,

		{Type: "tracepoint:syscalls:sys_enter_open*", Unit: "count"}: 1,
		{Type: "uprobe:/bin/tar:main", Unit: "count"}:                1,
	}
	got := map[profile.ValueType]int64{}
	for v, typ := range p.ValueTypes {
		got[typ] = p.Total(v)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if p.ValueTypes[0].Type != "cpu" || p.Meta.Value != "cpu" {
		t.Errorf("got first value %v, default %q; want cpu", p.ValueTypes[0], p.Meta.Value)
	}
	for _, task := range p.Tasks {
		if task.TID != 0 {
			t.Errorf("got the thread %+v, want processes, as in the recording's page", task)
		}
	}
}

// sumsOf returns the sums of a recording's events by value. It fails if they are not sorted,
// or outside of the recording.
func sumsOf(t *testing.T, line *profile.Timeline) map[profile.ValueType]int64 {
	t.Helper()
	sums := map[profile.ValueType]int64{}
	add := func(v profile.ValueType, n int64) {
		if n != 0 {
			sums[v] += n
		}
	}
	last := line.Start
	check := func(at int64, stack profile.StackID) {
		t.Helper()
		if at < last || at > line.End || int(stack) >= len(line.Profile.Stacks) {
			t.Fatalf("got an event at %d with stack %d; want a time from %d to %d, and a stack below %d", at, stack, last, line.End, len(line.Profile.Stacks))
		}
		last = at
	}
	for id := range line.Threads {
		last = line.Start
		for e, err := range line.Events.OnCPU(profile.ThreadID(id)) {
			if err != nil {
				t.Fatal(err)
			}
			check(e.Time, e.Stack)
			if line.Sampled == (profile.ValueType{}) {
				add(cpuTime, e.Weight)
			} else {
				add(line.Sampled, e.Amount)
			}
		}
		for e, err := range line.Events.OffCPU(profile.ThreadID(id)) {
			if err != nil {
				t.Fatal(err)
			}
			last = 0 // a wait can begin before the recording
			check(e.Start, e.Stack)
			add(profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}, e.Duration)
		}
		last = line.Start
		for e, err := range line.Events.Markers(profile.ThreadID(id)) {
			if err != nil {
				t.Fatal(err)
			}
			check(e.Time, e.Stack)
			add(line.MarkerTypes[e.Type].Value(), e.Amount(line.MarkerTypes[e.Type]))
		}
	}
	return sums
}

// totals returns the totals of a profile's values that are not 0.
func totals(p *profile.Profile) map[profile.ValueType]int64 {
	sums := map[profile.ValueType]int64{}
	for v, typ := range p.ValueTypes {
		if n := p.Total(v); n != 0 {
			sums[typ] = n
		}
	}
	return sums
}

// withTimes reads data with its times.
func withTimes(t *testing.T, data []byte) (Decoded, *profile.Timeline) {
	t.Helper()
	d, err := ReadWith(t.Context(), bytes.NewReader(data), "input", Options{Times: true})
	if err != nil {
		t.Fatal(err)
	}
	if d.Times == nil {
		t.Fatal("got no times")
	}
	return d, d.Times.Timeline(d.Profile, func(s profile.StackID) profile.StackID { return s })
}

// A recording keeps its samples, its waits with their reasons, and the other weights with
// their times. A profile without times has none.
func TestReadTimes(t *testing.T) {
	line := timelinetest.Recording(t)
	d, got := withTimes(t, encoded(t, func(w io.Writer) error { return firefox.Write(w, line, firefox.Options{}) }))
	if diff := cmp.Diff(totals(d.Profile), sumsOf(t, got)); diff != "" {
		t.Errorf("sums (-profile +times):\n%s", diff)
	}
	const ms = int64(time.Millisecond)
	begin := got.Start
	if length := got.End - begin; length != 100*ms || got.Interval != ms {
		t.Errorf("got a recording of %d ns with an interval of %d, want 100 ms and 1 ms", length, got.Interval)
	}
	var on []int64
	for e := range got.Events.OnCPU(0) {
		on = append(on, (e.Time-begin)/ms)
	}
	if want := []int64{1, 2, 3, 4, 5, 26}; !slices.Equal(on, want) {
		t.Errorf("got samples at %v ms, want %v", on, want)
	}
	var off []profile.OffCPU
	for e := range got.Events.OffCPU(0) {
		off = append(off, e)
	}
	if len(off) != 2 || off[0].Start-begin != 5*ms+500_000 || off[0].Duration != 20*ms+1 || got.Reasons[off[0].Stack] != "disk read" ||
		off[1].Start-begin != 27*ms || off[1].Duration != 300_000 || off[1].State != profile.StateRunnable {
		t.Errorf("got waits %+v for %v, want one of 20.000001 ms for a disk after 5.5 ms, and one of 0.3 ms preempted after 27 ms", off, got.Reasons)
	}
	for _, again := range [][]byte{
		encoded(t, func(w io.Writer) error { return firefox.Write(w, got, firefox.Options{}) }),
		encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, d.Profile, flame.Options{Times: got}) }),
	} {
		p, _, err := Read(t.Context(), bytes.NewReader(again), "written again")
		if err != nil {
			t.Fatal(err)
		}
		sums := totals(p)
		for v, want := range totals(d.Profile) {
			if sums[v] != want {
				t.Errorf("written again: got %d %s, want %d", sums[v], v.Type, want)
			}
		}
	}

	aggregated := encoded(t, func(w io.Writer) error { return firefox.WriteProfile(w, encodetest.Typical(), firefox.Options{}) })
	if d, err := ReadWith(t.Context(), bytes.NewReader(aggregated), "input", Options{Times: true}); err != nil || d.Times != nil {
		t.Errorf("got times %v: %v; want none", d.Times, err)
	}
}

// samply's profiles are read with their times: version 49, in which each thread has tables of
// its own, and version 66.
func TestReadSamply(t *testing.T) {
	for _, name := range []string{"samply-49", "samply-66"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			d, line := withTimes(t, data)
			if diff := cmp.Diff(totals(d.Profile), sumsOf(t, line)); diff != "" {
				t.Errorf("sums (-profile +times):\n%s", diff)
			}
			want := "gzip-7/7;main;[gzip+0x4290] 2\ngzip-7/7;main;wait 1700\nworker-7/8;main;[gzip+0x4290] 1\n"
			if got := fold(t, d.Profile, 0); got != want {
				t.Errorf("got stacks\n%s\nwant\n%s", got, want)
			}
			if !d.Relative || len(d.Profile.ValueTypes) != 1 || line.Sampled != d.Profile.ValueTypes[0] || line.End-line.Start != int64(1703*time.Millisecond) {
				t.Errorf("got relative addresses %v, values %v and %v, %d ns; want relative ones, samples, and 1703 ms", d.Relative, d.Profile.ValueTypes, line.Sampled, line.End-line.Start)
			}
			page := encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, d.Profile, flame.Options{Times: line}) })
			p, _, err := Read(t.Context(), bytes.NewReader(page), "page")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(totals(d.Profile), totals(p)); diff != "" {
				t.Errorf("the page's values (-want +got):\n%s", diff)
			}
		})
	}
}

// The text formats of other tools give the expected stacks and values.
func TestReadText(t *testing.T) {
	for name, format := range map[string]Format{"perf-script": PerfScript, "bpftrace": Bpftrace} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			p := decoded(t, data, format)
			var out strings.Builder
			for v, typ := range p.ValueTypes {
				out.WriteString("# " + typ.Type + " " + typ.Unit + "\n" + fold(t, p, v))
			}
			encodetest.Golden(t, name+".folded", []byte(out.String()))
		})
	}
}

// What bpftrace prints besides numbers of stacks is neither a sample nor silently left out.
func TestBpftraceLines(t *testing.T) {
	for name, c := range map[string]struct {
		in           string
		stacks       int
		total        int64
		lost, unread uint64
	}{
		"messages":       {"Attaching 3 probes...\nAttached 1 probe\n\n@[\n    a+1\n, tar]: 2\n", 1, 2, 0, 0},
		"printf":         {"Tracing... Hit Ctrl-C to end.\n@[\n    a+1\n]: 2\nbye\n", 1, 2, 0, 2},
		"lost":           {"@[\n    a+1\n]: 2\nLost 40 events\nWARNING: Lost 2 events\n", 1, 2, 42, 0},
		"plain maps":     {"@n: 4\n@avg: count 1, average 3, total 3\n@[\n    a+1\n]: 2\n@us: \n[2, 4)                 1 |@@@@@@   |\n[1K, 2K)               7 |@@@@@@@@@|\n(..., 0)               1 |@@       |\n[3]                    1 |@|\n", 1, 2, 0, 0},
		"histogram":      {"@[\n    a+1\n]: 2\n@h[\n    a+1\n, tar]: \n[2, 4)                 1 |@@@@@@   |\n\n@s[\n    b+1\n]:\n[0]     1 |@|\n@t[tar]: count 1, average 3, total 3\n", 1, 2, 0, 3},
		"no end":         {"@[\n    a+1\n    b+1\n@[\n    c+1\n]: 2\n@[\n    a+1\n", 1, 2, 0, 5},
		"tuple":          {"@[(\n    a+1\n, (sd-pam))]: 2\n@[(7, tar)]: 1\n@[7, tar]: 1\n", 2, 4, 0, 0},
		"raw, perf mode": {"@[\n    ffffffff81d955c0\n    7f7241fbe6d8\n]: 2\n@[\n\tffffffff81d955c0 do_exit+80 ([kernel.kallsyms])\n\t7f7241fbe6d8 0x7f7241fbe6d8 ([unknown])\n]: 3\n", 2, 5, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := decoded(t, []byte(c.in), Bpftrace)
			if got := p.Total(0); len(p.Samples) != c.stacks || got != c.total || p.Losses[profile.LossRing] != c.lost || p.Losses[profile.LossUnread] != c.unread {
				t.Errorf("got %d stacks, a total of %d, %d lost, %d lines unread; want %d, %d, %d, %d", len(p.Samples), got, p.Losses[profile.LossRing], p.Losses[profile.LossUnread],
					c.stacks, c.total, c.lost, c.unread)
			}
			for _, f := range p.Functions {
				if strings.HasPrefix(f.Name, "ffffffff") || strings.HasPrefix(f.Name, "7f72") || strings.HasPrefix(f.Name, "(") {
					t.Errorf("got function %q", f.Name)
				}
			}
			for _, task := range p.Tasks {
				if name == "tuple" && task.Comm != "(sd-pam)" && (task.Comm != "tar" || task.PID != 7) && task != (profile.Task{}) {
					t.Errorf("got task %+v", task)
				}
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"empty":             {"", "input: is empty"},
		"blank":             {"\n", "no stacks"},
		"no number":         {"a;b\n", `line 1: no number after the stack "a;b"`},
		"overflow":          {"a;b 9223372036854775807\na;c 1\n", "add up to more than 9223372036854775807"},
		"large time":        {"# off-cpu in s\na;b 9223372037\n", "line 2: the number 9223372037 after the stack is too large"},
		"orphan":            {"a 1 1.5: PERF_RECORD_SWITCH OUT\n\t113c leaf+0x13 (/bin/t)\n", "no line is the head of a sample"},
		"cut gzip":          {"\x1f\x8b\x08", "input: truncated: the end of the compressed data is missing"},
		"cut gzip data":     {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x4a\xb4", "truncated: the end of the compressed data is missing"},
		"not a profile":     {"\x00\x01\x02\x03", "input: no known format"},
		"JSON":              {"{}", "input: is JSON, but not of the Firefox Profiler or OpenTelemetry: meta.preprocessedProfileVersion"},
		"large JSON":        {`{"threads":[` + strings.Repeat("1,", sniffed) + `1]}`, "input: is JSON, but not of the Firefox Profiler or OpenTelemetry: meta.preprocessedProfileVersion"},
		"large speedscope":  {`{"shared":{"frames":[` + strings.Repeat("{},", sniffed) + `{}]},"profiles":[]}`, "input: is a profile of speedscope: "},
		"large, cut short":  {`{"threads":[` + strings.Repeat("{},", sniffed), "input: read as firefox: the text ends within a value"},
		"newer":             {`{"meta":{"preprocessedProfileVersion":71}}`, "version 71"},
		"JSON of bpftrace":  {`{"type": "attached_probes", "data": {"probes": 1}}` + "\n", "input: is bpftrace's output in JSON: run bpftrace without -f json"},
		"stacks":            {`{"meta":{"preprocessedProfileVersion":70},"shared":{"stackTable":{"frame":[0],"prefixOffset":[]}}}`, "1 frames and 0 prefixes"},
		"frame of no table": {`{"meta":{"preprocessedProfileVersion":70},"shared":{"stackTable":{"frame":[5],"prefixOffset":[0]}}}`, "row 5 of frameTable.func"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Read(t.Context(), strings.NewReader(c.in), "input")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

// Folded stacks state values that are not counts; other comments have no effect.
func TestFoldedUnit(t *testing.T) {
	for in, want := range map[string]struct {
		v profile.ValueType
		n int64
	}{
		"a;b 7\n": {profile.ValueType{Type: "samples", Unit: "count"}, 7},
		"# off-cpu in microseconds\na;b 7\na;c 1\n": {profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}, 8000},
		"# made on Monday\n# bytes in bytes\na 7\n": {profile.ValueType{Type: "bytes", Unit: "bytes"}, 7},
		"# bytes read in ms\na 7\n":                 {profile.ValueType{Type: "samples", Unit: "count"}, 7},
	} {
		p := decoded(t, []byte(in), Folded)
		if got := p.Total(0); len(p.ValueTypes) != 1 || p.ValueTypes[0] != want.v || got != want.n {
			t.Errorf("%q: got %d of %v, want %d of %v", in, got, p.ValueTypes, want.n, want.v)
		}
	}
	typical := encodetest.Typical()
	for v, of := range typical.ValueTypes {
		_, amount := profile.PrintedUnit(of.Unit)
		p := decoded(t, []byte(fold(t, typical, v)), Folded)
		if d := p.Total(0) - typical.Total(v); p.ValueTypes[0] != of || d < -int64(len(p.Samples))*amount/2 || d > int64(len(p.Samples))*amount/2 {
			t.Errorf("value %d: got %d of %v, want %d of %v", v, p.Total(0), p.ValueTypes[0], typical.Total(v), of)
		}
	}
}

func TestFoldedTask(t *testing.T) {
	for name, want := range map[string]profile.Task{
		"server":          {Comm: "server"},
		"a-b-42/43":       {PID: 42, TID: 43, Comm: "a-b"},
		"[unknown]-?/43":  {TID: 43, Comm: "[unknown]"},
		"kworker/u8:1-ev": {Comm: "kworker/u8:1-ev"},
	} {
		if got := folded.Task(name); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// OTLP files are recognized in any order of their fields, and pprof's are not taken for one.
func TestSniffOTLP(t *testing.T) {
	p := encodetest.Typical()
	data := encoded(t, func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) })
	var resources, dictionary []byte
	scanFields(data, func(f protoField) bool {
		part := append(binary.AppendUvarint([]byte{byte(f.number<<3 | 2)}, uint64(len(f.data))), f.data...)
		if f.number == otelprofiles.DataDictionary {
			dictionary = part
		} else {
			resources = append(resources, part...)
		}
		return true
	})
	for name, parts := range map[string][]byte{
		"dictionary first":     slices.Concat(dictionary, resources),
		"empty resource first": slices.Concat([]byte{otelprofiles.DataResource<<3 | 2, 0}, resources, dictionary),
	} {
		if got := decoded(t, parts, OTLP); got.Total(0) != p.Total(0) {
			t.Errorf("%s: got total %d, want %d", name, got.Total(0), p.Total(0))
		}
	}
	for _, p := range []*profile.Profile{p, encodetest.Threads(), encodetest.Empty()} {
		packed := encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) })
		in, err := unpacked(t.Context(), bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := io.ReadAll(in); isOTLP(data) {
			t.Error("got OTLP for a profile of pprof")
		}
	}
}

// field returns a field of a protocol buffer message.
func field(number int, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return append(binary.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(body))), body...)
}

// resource returns a resource with the contents of a scope.
func resource(scope ...[]byte) []byte {
	return field(otelprofiles.DataResource, field(otelprofiles.ResourceProfilesScope, scope...))
}

// Small files that describe much are refused, or read in bounded memory, until the context
// is done.
func TestHostileOTLP(t *testing.T) {
	one := func(number int) []byte { return []byte{byte(number << 3), 1} }
	sample := field(otelprofiles.ProfileSample, one(otelprofiles.SampleStack), field(otelprofiles.SampleValues, []byte{1}))
	value := field(otelprofiles.ProfileSampleType, one(otelprofiles.ValueTypeType))
	profiles := bytes.Repeat(field(otelprofiles.ScopeProfilesProfile, value), 1<<20)
	name := field(otelprofiles.DictionaryString, bytes.Repeat([]byte("x"), 8<<20))
	none := func(table int) []byte { return field(table) }
	lines := bytes.Repeat(field(otelprofiles.LocationLine), profile.MaxDepth+1)
	for name, data := range map[string][]byte{
		"long name of a type of value in many profiles": slices.Concat(resource(profiles), resource(field(otelprofiles.ScopeProfilesProfile, value, sample)),
			field(otelprofiles.DataDictionary, none(otelprofiles.DictionaryString), name, none(otelprofiles.DictionaryStack), none(otelprofiles.DictionaryStack))),
	} {
		p := decoded(t, data, OTLP)
		if got := p.Total(0); got != 1 || len(p.ValueTypes[0].Type) > profile.MaxName {
			t.Errorf("%s: got total %d, and a name of %d bytes", name, got, len(p.ValueTypes[0].Type))
		}
	}
	many := slices.Concat(resource(field(otelprofiles.ScopeProfilesProfile, sample)), field(otelprofiles.DataDictionary,
		none(otelprofiles.DictionaryLocation), field(otelprofiles.DictionaryLocation, lines),
		none(otelprofiles.DictionaryStack), field(otelprofiles.DictionaryStack, field(otelprofiles.StackLocations, []byte{1}))))
	if _, _, err := Read(t.Context(), bytes.NewReader(many), "input"); err == nil || !strings.Contains(err.Error(), "lines") {
		t.Errorf("location with many lines: got error %v, want one about lines", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &otlpReader{ctx: ctx}
	cancel()
	n := 0
	for range c.parts(profiles, otelprofiles.ScopeProfilesProfile) {
		n++
	}
	if n > 1<<16 || c.err == nil {
		t.Errorf("read %d fields after the end of the context, error %v", n, c.err)
	}
}

// Groups are skipped, like any field that is not known. A message that other readers refuse is refused,
// not read without its rest.
func TestMalformedOTLP(t *testing.T) {
	values := field(otelprofiles.SampleValues, []byte{5})
	group := []byte{14<<3 | 3, 1<<3 | 3, 2 << 3, 1, 1<<3 | 4, 14<<3 | 4}
	for name, c := range map[string]struct {
		sample []byte
		fails  bool
	}{
		"group":                         {slices.Concat(group, values, group), false},
		"group without an end":          {slices.Concat(values, group[:len(group)-1]), true},
		"end of a group":                {slices.Concat(values, group[len(group)-1:]), true},
		"field that is longer":          {slices.Concat(values, []byte{otelprofiles.SampleValues<<3 | 2, 2, 1}), true},
		"number without an end":         {slices.Concat(values, []byte{otelprofiles.SampleStack << 3, 0x80}), true},
		"unknown type of field":         {slices.Concat(values, []byte{14<<3 | 7}), true},
		"list whose last number is cut": {field(otelprofiles.SampleValues, []byte{5, 0x80}), true},
	} {
		data := slices.Concat(resource(field(otelprofiles.ScopeProfilesProfile, field(otelprofiles.ProfileSample, c.sample))),
			group, field(otelprofiles.DataDictionary, field(otelprofiles.DictionaryStack)), group)
		if err := proto.Unmarshal(data, &pb.ProfilesData{}); (err != nil) != c.fails {
			t.Fatalf("%s: OpenTelemetry's reader has the error %v", name, err)
		}
		p, err := read(t.Context(), bufio.NewReader(bytes.NewReader(data)), OTLP, "")
		if c.fails != (err != nil) || !c.fails && (err != nil || p.Total(0) != 5) {
			t.Errorf("%s: got error %v, want one: %v", name, err, c.fails)
		}
	}
}

// Reading a list ends with the context, and a list of attributes is short.
func TestHostileOTLPLists(t *testing.T) {
	list := make([]byte, 1<<20)
	for name, read := range map[string]func(c *otlpReader) error{
		"attributes": func(c *otlpReader) error {
			c.sample(field(otelprofiles.SampleAttributes, list), profile.Task{}, c.value(otlpValueType{}))
			return c.err
		},
		"attributes of a location": func(c *otlpReader) error {
			c.locationRows = [][]byte{field(otelprofiles.LocationAttributes, list)}
			c.frames(0)
			return c.err
		},
		"attributes of a mapping": func(c *otlpReader) error {
			c.mappingRows = [][]byte{nil, field(otelprofiles.MappingAttributes, list)}
			c.mapping(1)
			return c.err
		},
		"values": func(c *otlpReader) error {
			c.sample(field(otelprofiles.SampleValues, list), profile.Task{}, c.value(otlpValueType{}))
			return c.err
		},
		"locations": func(c *otlpReader) error {
			c.stackRows = [][]byte{field(otelprofiles.StackLocations, list)}
			c.stack(0)
			return c.err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := newOTLPReader(ctx)
		if err := read(c); !errors.Is(err, context.Canceled) || c.read > 1<<16 {
			t.Errorf("%s: read %d bytes after the end of the context, error %v", name, c.read, err)
		}
		if !strings.HasPrefix(name, "attributes") {
			continue
		}
		c = newOTLPReader(t.Context())
		if err := read(c); err == nil || !strings.Contains(err.Error(), "attributes") || c.read > 2*len(list) {
			t.Errorf("%s: read %d bytes, error %v; want one about attributes", name, c.read, err)
		}
	}
}

// Rows and texts to which millions of places refer are read once.
func TestHostileOTLPReferences(t *testing.T) {
	const long, many = 1 << 14, 1 << 12 // fields of the row, and references to it
	one := func(number int) []byte { return []byte{byte(number << 3), 1} }
	none := func(table int) []byte { return field(table) }
	row := func(table, number int) []byte { return field(table, bytes.Repeat(one(number), long)) }
	sample := func(parts ...[]byte) []byte {
		return resource(field(otelprofiles.ScopeProfilesProfile, field(otelprofiles.ProfileSample, append(parts, field(otelprofiles.SampleValues, []byte{1}))...)))
	}
	for name, data := range map[string][]byte{
		"functions": slices.Concat(sample(one(otelprofiles.SampleStack)), field(otelprofiles.DataDictionary,
			none(otelprofiles.DictionaryString), none(otelprofiles.DictionaryString),
			none(otelprofiles.DictionaryFunction), row(otelprofiles.DictionaryFunction, otelprofiles.FunctionName),
			none(otelprofiles.DictionaryLocation), field(otelprofiles.DictionaryLocation, bytes.Repeat(field(otelprofiles.LocationLine, one(otelprofiles.LineFunction)), many)),
			none(otelprofiles.DictionaryStack), field(otelprofiles.DictionaryStack, field(otelprofiles.StackLocations, []byte{1})))),
		"links": slices.Concat(sample(bytes.Repeat(one(otelprofiles.SampleLink), many)), field(otelprofiles.DataDictionary,
			none(otelprofiles.DictionaryLink), row(otelprofiles.DictionaryLink, 7))),
		"attributes": slices.Concat(sample(field(otelprofiles.SampleAttributes, bytes.Repeat([]byte{1}, many))), field(otelprofiles.DataDictionary,
			none(otelprofiles.DictionaryString), none(otelprofiles.DictionaryString),
			none(otelprofiles.DictionaryAttribute), row(otelprofiles.DictionaryAttribute, otelprofiles.AttributeKey))),
	} {
		c := newOTLPReader(t.Context())
		if err := c.message(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if limit := 8 * (long + many); c.read > limit {
			t.Errorf("%s: read %d bytes, want at most %d", name, c.read, limit)
		}
	}
}

// A link of a sample stands for one trace and one span, and a sample has one: of several, the last one
// counts.
func TestHostileOTLPLinks(t *testing.T) {
	link := field(otelprofiles.DictionaryLink, bytes.Repeat(field(otelprofiles.LinkTraceID, []byte{1}), maxLabels+1), field(otelprofiles.LinkTraceID, []byte{2}))
	for _, n := range []int{1, maxLabels + 1} {
		data := slices.Concat(
			resource(field(otelprofiles.ScopeProfilesProfile, field(otelprofiles.ProfileSample, bytes.Repeat([]byte{otelprofiles.SampleLink << 3, 1}, n), field(otelprofiles.SampleValues, []byte{1})))),
			field(otelprofiles.DataDictionary, field(otelprofiles.DictionaryLink), link))
		p := decoded(t, data, OTLP)
		if got := p.LabelsOf(p.Samples[0].Task); len(got) != 1 || got[0] != (profile.Label{Key: profile.TraceID, Value: "02"}) {
			t.Errorf("%d links: got labels %v, want the link's last trace", n, got)
		}
	}
}

// Messages whose objects would take gigabytes are refused before, and so are deep ones. Long lists of
// numbers are read.
func TestHostileOTLPObjects(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, 1<<30, 20*time.Second, func(t *testing.T) {
		value := func(parts ...[]byte) []byte {
			return field(otelprofiles.DictionaryAttribute, []byte{otelprofiles.AttributeKey << 3, 1}, field(otelprofiles.AttributeValue, parts...))
		}
		deep := func(n int) (data []byte) {
			for range n {
				data = field(otelprofiles.AnyArray, field(otelprofiles.ArrayValues, data))
			}
			return data
		}
		const objects = 8 << 20
		for name, c := range map[string]struct {
			row  []byte // of attributes
			more []byte // of the sample
			want string // error
		}{
			"many values in a list":        {row: value(field(otelprofiles.AnyArray, bytes.Repeat(field(otelprofiles.ArrayValues), objects))), want: "a message KeyValueAndUnit takes more"},
			"many keys":                    {row: value(field(6, bytes.Repeat(field(1), objects))), want: "a message KeyValueAndUnit takes more"},
			"deep and long":                {row: value(deep(1 << 14)), want: "a message KeyValueAndUnit takes more"},
			"deep and short":               {row: value(deep(maxOTLPDepth)), want: "recursion depth"},
			"numbers without a list":       {more: bytes.Repeat([]byte{otelprofiles.SampleValues << 3, 1}, objects), want: "a message Sample takes more"},
			"a long list of numbers":       {more: field(otelprofiles.SampleValues, bytes.Repeat([]byte{1}, objects))},
			"unknown fields in any number": {more: bytes.Repeat([]byte{15 << 3, 1}, objects)},
		} {
			row := c.row
			if row == nil {
				row = value(field(otelprofiles.AnyString, []byte("x")))
			}
			data := slices.Concat(
				resource(field(otelprofiles.ScopeProfilesProfile, field(otelprofiles.ProfileSample, field(otelprofiles.SampleAttributes, []byte{1}), field(otelprofiles.SampleValues, []byte{1}), c.more))),
				field(otelprofiles.DataDictionary, field(otelprofiles.DictionaryString), field(otelprofiles.DictionaryString, []byte("key")), field(otelprofiles.DictionaryAttribute), row))
			_, _, err := Read(t.Context(), bytes.NewReader(data), "input")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got error %v, want %q", name, err, c.want)
			}
		}
	})
}

// Any number of samples may refer to the same long labels.
func TestLabelText(t *testing.T) {
	c := newCollector(profile.ValueType{Type: "samples", Unit: "count"})
	c.labelText = 10
	if err := c.label(profile.Label{Key: "key", Value: "value"}); err != nil {
		t.Error(err)
	}
	if id := c.labelSet(); id == 0 || c.labelSet() != 0 {
		t.Errorf("got ID %d, want one for the first sample only", id)
	}
	if err := c.label(profile.Label{Key: "key", Value: "value"}); !errors.Is(err, errLabelText) {
		t.Errorf("got error %v, want %v", err, errLabelText)
	}
}

// Millions of attributes refer to one description of the run, which is parsed once.
func TestBombOTLPRun(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, 512<<20, 20*time.Second, func(t *testing.T) {
		p := encodetest.Typical()
		p.Meta.Command = strings.Repeat("x", profile.MaxName-1024)
		text := runinfo.Text(p)
		key := field(otelprofiles.KeyValueKey, []byte(otelprofiles.Run))
		attribute := field(otelprofiles.ScopeAttributes, key, field(otelprofiles.KeyValueValue, []byte{8 << 3, 1}))
		data := slices.Concat(
			resource(field(otelprofiles.ScopeProfilesScope, bytes.Repeat(attribute, 1<<20)),
				field(otelprofiles.ScopeProfilesProfile, field(otelprofiles.ProfileSample, field(otelprofiles.SampleValues, []byte{1})))),
			field(otelprofiles.DataDictionary, field(otelprofiles.DictionaryString), field(otelprofiles.DictionaryString, []byte(text))))
		got := decoded(t, data, OTLP)
		if got.Meta.Command != p.Meta.Command || got.Meta.Converted {
			t.Errorf("got a command of %d bytes, converted: %v; want the description's", len(got.Meta.Command), got.Meta.Converted)
		}
	})
}

// Owners are read back, as far as the format has them.
func TestOwnersRoundTrip(t *testing.T) {
	byOwner := func(p *profile.Profile, lose func(*profile.Owner)) map[profile.Owner]int64 {
		sums := map[profile.Owner]int64{}
		for _, s := range p.Samples {
			o := p.Owner(s.Task)
			lose(&o)
			sums[o] += s.Values[0]
		}
		return sums
	}
	p := encodetest.Owners()
	if n := len(p.Owners); n != 6 {
		t.Fatalf("got %d owners, want 6", n)
	}
	for format, test := range map[Format]struct {
		write func(io.Writer) error
		lose  func(*profile.Owner)
	}{
		Pprof: {func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) }, func(o *profile.Owner) { o.Unknown, o.Runtime, o.PodUID = false, "", "" }},
		OTLP:  {func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) }, func(o *profile.Owner) { o.Unknown = false }},
	} {
		got := decoded(t, encoded(t, test.write), format)
		if diff := cmp.Diff(byOwner(p, test.lose), byOwner(got, func(*profile.Owner) {})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// Labels of programs are restored, also those with keys that the formats use for other data.
func TestLabels(t *testing.T) {
	sets := []profile.Labels{
		nil,
		{{Key: "kind", Value: "x"}},
		{{Key: "comm", Value: "forged"}, {Key: "label.comm", Value: "a"}, {Key: "pid", Value: "9"}},
		{{Key: "container.id", Value: "forged"}, {Key: "label.thread.id", Value: "b"}, {Key: "thread.id", Value: "8"}},
		{{Key: "span_id", Value: "0102030405060708"}, {Key: "trace_id", Value: "0102030405060708090a0b0c0d0e0f10"}},
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	for i, set := range sets {
		b.Add(profile.Sample{Task: b.Task(profile.Task{PID: 7, TID: 8, Comm: "server", Labels: b.Labels(slices.Clone(set))}), CPU: -1, Values: []int64{int64(1 + i)}})
	}
	p := b.Profile(profile.Meta{}, profile.Losses{})
	for format, write := range map[Format]func(io.Writer) error{
		Pprof: func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) },
		OTLP:  func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) },
	} {
		got := decoded(t, encoded(t, write), format)
		if len(got.Samples) != len(sets) {
			t.Errorf("%s: got %d samples, want %d", format, len(got.Samples), len(sets))
		}
		for _, s := range got.Samples {
			if want, task := sets[s.Values[0]-1], got.Tasks[s.Task]; !slices.Equal(got.LabelsOf(s.Task), want) || task.PID != 7 || task.TID != 8 || task.Comm != "server" {
				t.Errorf("%s: got labels %v of %+v, want %v", format, got.LabelsOf(s.Task), task, want)
			}
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// The value that is shown first stays the same through pprof's format, whose own default is the last.
func TestDefaultValueThroughPprof(t *testing.T) {
	const script = "a 1 1.0: 7 instructions:\n\t1 f (/x)\n\na 1 2.0: 5 cycles:\n\t1 f (/x)\n\n"
	p, _, err := Read(t.Context(), strings.NewReader(script), "in")
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := pprof.Write(&packed, p, pprof.Options{}); err != nil {
		t.Fatal(err)
	}
	again, _, err := Read(t.Context(), &packed, "pprof")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.ValueTypes[again.Weight()].Type, p.ValueTypes[0].Type; got != want {
		t.Errorf("the default value is %q, want %q", got, want)
	}
}

// A thread without a type of weights counts samples, as the Firefox Profiler's front end does.
func TestFirefoxWithoutWeightType(t *testing.T) {
	const file = `{"meta":{"preprocessedProfileVersion":49,"interval":1,"categories":[{"name":"Other","subcategories":["Other"]}]},
		"libs":[],"threads":[{"name":"T","pid":"10","tid":11,"stringArray":["f"],
		"frameTable":{"length":1,"address":[-1],"inlineDepth":[0],"category":[0],"func":[0],"nativeSymbol":[null],"line":[null]},
		"funcTable":{"length":1,"name":[0],"resource":[-1],"fileName":[null],"lineNumber":[null]},
		"stackTable":{"length":1,"frame":[0],"prefix":[null]},"resourceTable":{"length":0,"lib":[],"name":[]},
		"nativeSymbols":{"length":0,"address":[],"libIndex":[],"name":[]},
		"samples":{"length":3,"stack":[0,0,0],"time":[0,1,2]}}]}`
	p, _, err := Read(t.Context(), strings.NewReader(file), "in")
	if err != nil {
		t.Fatal(err)
	}
	want := profile.ValueType{Type: "samples", Unit: "count"}
	if got := p.ValueTypes[p.Weight()]; got != want || p.Total(p.Weight()) != 3 {
		t.Errorf("%d %v, want 3 %v", p.Total(p.Weight()), got, want)
	}
}
