package otlp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	pb "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/otelprofiles"
)

// written encodes p, decodes it with OpenTelemetry's messages, and checks the rules.
func written(t *testing.T, p *profile.Profile) *pb.ProfilesData {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p, Options{}); err != nil {
		t.Fatal(err)
	}
	var data pb.ProfilesData
	if err := proto.Unmarshal(out.Bytes(), &data); err != nil {
		t.Fatal(err)
	}
	if n := len(data.ProtoReflect().GetUnknown()); n > 0 {
		t.Fatalf("%d bytes of unknown fields", n)
	}
	checkRules(t, &data)
	return &data
}

// TestWrite compares the output, as text, with golden files.
func TestWrite(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical.txt": encodetest.Typical(), "threads.txt": encodetest.Threads(), "owners.txt": encodetest.Owners(),
		"hostile.txt": encodetest.Hostile(), "empty.txt": encodetest.Empty(),
	} {
		t.Run(name, func(t *testing.T) {
			data := written(t, p)
			encodetest.Golden(t, name, []byte(describe(data)))
			if got, want := samplesOf(data), samplesIn(p); !cmp.Equal(got, want) {
				t.Errorf("samples (-profile +written):\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// FuzzWrite writes profiles of any shape.
func FuzzWrite(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := encodetest.Random(rand.New(rand.NewPCG(seed, 0)))
		data := written(t, p)
		if got, want := samplesOf(data), samplesIn(p); !cmp.Equal(got, want) {
			t.Errorf("samples (-profile +written):\n%s", cmp.Diff(want, got))
		}
	})
}

// TestNoSamples checks that the losses of a profile without samples are in the file.
func TestNoSamples(t *testing.T) {
	p := encodetest.Empty()
	p.Losses[profile.LossSamples] = 7
	lost := int64(0)
	data := written(t, p)
	for _, row := range data.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].AttributeIndices {
		if a := data.Dictionary.AttributeTable[row]; data.Dictionary.StringTable[a.KeyStrindex] == "fulgur.lost.samples" {
			lost = a.Value.GetIntValue()
		}
	}
	if lost != 7 {
		t.Errorf("got %d lost samples, want 7", lost)
	}
}

// TestScope checks that the scope is the same in all windows of a measurement: back ends make
// its attributes labels of time series.
func TestScope(t *testing.T) {
	p := encodetest.Typical()
	scope := func() string { return written(t, p).ResourceProfiles[0].ScopeProfiles[0].Scope.String() }
	first := scope()
	p.Meta.Start = p.Meta.Start.Add(time.Minute)
	p.Meta.Duration++
	p.Losses[profile.LossSamples]++
	if diff := cmp.Diff(first, scope()); diff != "" {
		t.Errorf("(-first window +second):\n%s", diff)
	}
}

// TestPeriod checks that a count times its period never exceeds the measured time, even if the count
// includes waits.
func TestPeriod(t *testing.T) {
	samples, waits := profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "waits", Unit: "count"}
	cpu, off := profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}
	for name, test := range map[string]struct {
		values []profile.ValueType
		hz     uint64
		want   []string
	}{
		"samples": {[]profile.ValueType{samples, cpu}, 100, []string{"samples count, 10000000 cpu nanoseconds", "cpu nanoseconds, 10000000 cpu nanoseconds"}},
		"both":    {[]profile.ValueType{samples, cpu, off}, 100, []string{"samples count, 1 samples count", "cpu nanoseconds, 10000000 cpu nanoseconds", "off_cpu nanoseconds, 0"}},
		"waits": {
			[]profile.ValueType{waits, {Type: "runnable", Unit: "nanoseconds"}, off}, 0,
			[]string{"waits count, 1 waits count", "runnable nanoseconds, 1 runnable nanoseconds", "off_cpu nanoseconds, 0"},
		},
		"unknown": {[]profile.ValueType{samples}, 0, []string{"samples count, 1 samples count"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := profile.NewBuilder(test.values...)
			data := written(t, b.Profile(profile.Meta{Frequency: test.hz, Value: "cpu"}, profile.Losses{}))
			var got []string
			for _, p := range data.ResourceProfiles[0].ScopeProfiles[0].Profiles {
				of := func(v *pb.ValueType) string {
					return data.Dictionary.StringTable[v.TypeStrindex] + " " + data.Dictionary.StringTable[v.UnitStrindex]
				}
				text := fmt.Sprintf("%s, %d", of(p.SampleType), p.Period)
				if p.PeriodType != nil {
					text += " " + of(p.PeriodType)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestReduced checks that the attributes of profiles show what was left out to save CPU time and
// memory.
func TestReduced(t *testing.T) {
	p := encodetest.Typical()
	p.Meta.RequestedFrequency, p.Meta.Reduction, p.Meta.NamesOmitted = 999, 8, true
	data := written(t, p)
	got := map[string]string{}
	for _, row := range data.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].AttributeIndices {
		a := data.Dictionary.AttributeTable[row]
		got[data.Dictionary.StringTable[a.KeyStrindex]] = a.Value.String()
	}
	for key, want := range map[string]string{
		otelprofiles.RequestedFrequency: "int_value:999", otelprofiles.Reduction: "int_value:8", otelprofiles.NamesOmitted: "bool_value:true",
	} {
		if got[key] != want {
			t.Errorf("%s: got %q, want %q", key, got[key], want)
		}
	}
}

// TestPublished checks that the attributes that a process publishes are in its own resource
// only, and replace only the name of its service.
func TestPublished(t *testing.T) {
	p := encodetest.Owners()
	pid := 0
	for _, s := range p.Samples {
		if task := p.Tasks[s.Task]; p.OwnerAt(task.Owner).Service() != "" && p.OwnerAt(task.Owner).ContainerID != "" {
			pid = task.PID
		}
	}
	if pid == 0 {
		t.Fatal("got no process of a service in a container")
	}
	p.Published = map[int][]profile.Attribute{pid: {
		{Key: "service.name", Value: "own"}, {Key: "container.id", Value: "forged"}, {Key: "process.pid", Value: int64(1)}, {Key: "host.name", Value: "forged"},
		{Key: "text", Value: "a\xff"}, {Key: "number", Value: int64(-5)}, {Key: "flag", Value: true}, {Key: "off", Value: false},
	}}
	for _, r := range written(t, p).ResourceProfiles {
		got := map[string]*common.AnyValue{}
		for _, a := range r.Resource.Attributes {
			if got[a.Key] != nil {
				t.Errorf("got attribute %s twice", a.Key)
			}
			got[a.Key] = a.Value
		}
		if got["process.pid"].GetIntValue() != int64(pid) {
			if got["service.name"].GetStringValue() == "own" || got["text"] != nil {
				t.Errorf("another process got the attributes %v", got)
			}
			continue
		}
		if got["service.name"].GetStringValue() != "own" || got["container.id"].GetStringValue() == "forged" || got["host.name"].GetStringValue() == "forged" ||
			got["text"].GetStringValue() != "a\ufffd" || got["number"].GetIntValue() != -5 || !got["flag"].GetBoolValue() || got["off"] == nil || got["off"].GetBoolValue() {
			t.Errorf("got %v", got)
		}
	}
}

// TestExecutable checks that a process has the name and the path of its program or, if these are unknown,
// the name of its main thread, if that has samples.
func TestExecutable(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	for _, task := range []profile.Task{
		{PID: 7, TID: 8, Comm: "worker"}, {PID: 7, TID: 7, Comm: "truncated-name"}, {PID: 9, TID: 9, Comm: "gone"}, {PID: 10, TID: 11, Comm: "worker"},
	} {
		b.Add(profile.Sample{Task: b.Task(task), CPU: -1, Values: []int64{1}})
	}
	p := b.Profile(profile.Meta{}, profile.Losses{})
	p.Executables = map[int]string{7: "/usr/bin/truncated-name-of-a-program"}
	var got []string
	for _, r := range written(t, p).ResourceProfiles {
		text := ""
		for _, a := range r.Resource.Attributes {
			switch a.Key {
			case otelprofiles.PID:
				text += fmt.Sprint(a.Value.GetIntValue())
			case otelprofiles.Executable, otelprofiles.ExecutablePath:
				text += " " + a.Value.GetStringValue()
			}
		}
		got = append(got, text)
	}
	want := []string{"7 truncated-name-of-a-program /usr/bin/truncated-name-of-a-program", "9 gone", "10"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLabels checks that labels of programs are attributes of samples, and do not replace others.
func TestLabels(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	labels := b.Labels(profile.Labels{{Key: "container.id", Value: "forged"}, {Key: "kind", Value: "x"}, {Key: "thread.name", Value: "forged"}})
	for _, task := range []profile.Task{{PID: 7, Comm: "server", Labels: labels}, {PID: 7, Comm: "server"}} {
		b.Add(profile.Sample{Task: b.Task(task), CPU: -1, Values: []int64{1}})
	}
	data := written(t, b.Profile(profile.Meta{}, profile.Losses{}))
	d := data.Dictionary
	var got []map[string]string
	for _, s := range data.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples {
		of := map[string]string{}
		for _, i := range s.AttributeIndices {
			a := d.AttributeTable[i]
			of[d.StringTable[a.KeyStrindex]] = a.Value.GetStringValue()
		}
		got = append(got, of)
	}
	want := []map[string]string{
		{"thread.name": "server", "kind": "x", "label.container.id": "forged", "label.thread.name": "forged"},
		{"thread.name": "server"},
	}
	if !cmp.Equal(got, want) {
		t.Errorf("attributes (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestLinks checks that the IDs of a trace and span are a link, and restored from it. Labels that only
// look like them are attributes.
func TestLinks(t *testing.T) {
	const trace, span = "000102030405060708090a0b0c0d0e0f", "f0f1f2f3f4f5f6f7"
	sets := []profile.Labels{
		{{Key: "kind", Value: "x"}, {Key: "span_id", Value: span}, {Key: "trace_id", Value: trace}},
		{{Key: "kind", Value: "x"}},
		{{Key: "kind", Value: "x"}, {Key: "span_id", Value: span}},
		{{Key: "span_id", Value: strings.ToUpper(span)}, {Key: "trace_id", Value: trace}},
		{{Key: "span_id", Value: span}, {Key: "trace_id", Value: strings.Repeat("0", 32)}},
		{{Key: "span_id", Value: span + "00"}, {Key: "trace_id", Value: trace}},
		{{Key: "label.thread.id", Value: "y"}, {Key: "thread.id", Value: "x"}},
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	for i, set := range sets {
		b.Add(profile.Sample{Task: b.Task(profile.Task{PID: 7, Comm: "server", Labels: b.Labels(set)}), CPU: -1, Values: []int64{int64(1 + i)}})
	}
	p := b.Profile(profile.Meta{}, profile.Losses{})
	data := written(t, p)
	links, samples := data.Dictionary.LinkTable, data.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples
	if len(links) != 2 || fmt.Sprintf("%x %x", links[1].TraceId, links[1].SpanId) != trace+" "+span {
		t.Errorf("got links %v", links)
	}
	for i, s := range samples {
		if want := []int32{1, 0, 0, 0, 0, 0, 0}[i]; s.LinkIndex != want {
			t.Errorf("sample %d: got link %d, want %d", i, s.LinkIndex, want)
		}
		for _, a := range s.AttributeIndices {
			if key := data.Dictionary.StringTable[data.Dictionary.AttributeTable[a].KeyStrindex]; i == 0 && strings.HasSuffix(key, "_id") {
				t.Errorf("the link is an attribute, too: %s", key)
			}
		}
	}
	for name, write := range map[string]func(io.Writer, *profile.Profile, Options) error{"protocol buffers": Write, "JSON": WriteJSON} {
		var file bytes.Buffer
		if err := write(&file, p, Options{}); err != nil {
			t.Fatal(err)
		}
		again, _, err := decode.Read(t.Context(), &file, "file")
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Samples) != len(sets) {
			t.Errorf("%s: got %d samples, want %d", name, len(again.Samples), len(sets))
		}
		for _, s := range again.Samples {
			if want := sets[s.Values[0]-1]; !slices.Equal(again.LabelsOf(s.Task), want) {
				t.Errorf("%s: got labels %v, want %v", name, again.LabelsOf(s.Task), want)
			}
		}
	}
}

func TestWriteError(t *testing.T) {
	if err := Write(encodetest.FullDisk{}, encodetest.Typical(), Options{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want %v", err, encodetest.ErrFullDisk)
	}
}

// TestResource adds attributes of the machine to all resources, and replaces those that the
// profile has.
func TestResource(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, encodetest.Typical(), Options{Resource: map[string]string{"host.name": "node", "a\xff": "b"}}); err != nil {
		t.Fatal(err)
	}
	var data pb.ProfilesData
	if err := proto.Unmarshal(out.Bytes(), &data); err != nil {
		t.Fatal(err)
	}
	for _, r := range data.ResourceProfiles {
		got := map[string]string{}
		for _, a := range r.Resource.Attributes {
			if got[a.Key] != "" {
				t.Errorf("got attribute %s twice", a.Key)
			}
			got[a.Key] = value(a.Value)
		}
		if got["host.name"] != "node" || got["a\uFFFD"] != "b" || got["os.type"] != "linux" {
			t.Errorf("got attributes %v", got)
		}
	}
}

// TestProfileID checks that the IDs of a profile are stable, and differ by process,
// value, host and run.
func TestProfileID(t *testing.T) {
	ids := func(p *profile.Profile) (list []string) {
		for _, r := range written(t, p).ResourceProfiles {
			for _, p := range r.ScopeProfiles[0].Profiles {
				list = append(list, string(p.ProfileId))
			}
		}
		return list
	}
	first := ids(encodetest.Typical())
	if again := ids(encodetest.Typical()); !slices.Equal(again, first) {
		t.Errorf("got IDs %x for the same profile, want %x", again, first)
	}
	host, run := encodetest.Typical(), encodetest.Typical()
	host.Meta.Host = "other"
	run.Losses[profile.LossSkipped]++
	seen := map[string]bool{}
	for _, id := range slices.Concat(first, ids(host), ids(run)) {
		if len(id) != 16 || seen[id] {
			t.Errorf("got ID %x, want 16 bytes unlike the others", id)
		}
		seen[id] = true
	}
}

// checkRules checks what the format demands of a file: the rules of OpenTelemetry's profcheck
// (https://github.com/open-telemetry/sig-profiling) with all of its options, namely rows that
// are in the tables, row 0 the zero value, no row twice and none that nothing refers to, samples
// of one shape, and values in their ranges. Beyond these, it checks that there is a scope, one
// value per sample, no sample twice, and that attributes have distinct keys.
func checkRules(t *testing.T, data *pb.ProfilesData) {
	t.Helper()
	r := rules{t, data.Dictionary, map[string]map[int32]bool{}}
	if len(data.ResourceProfiles) == 0 {
		t.Error("no resource")
	}
	for _, resource := range data.ResourceProfiles {
		if len(resource.ScopeProfiles) == 0 {
			t.Error("a resource without scopes")
		}
		for _, s := range resource.ScopeProfiles {
			if s.Scope.GetName() == "" || len(s.Profiles) == 0 {
				t.Errorf("scope %q with %d profiles", s.Scope.GetName(), len(s.Profiles))
			}
			for _, p := range s.Profiles {
				r.profile(p)
			}
		}
	}
	r.dictionary()
}

// rules checks the rules, and collects the rows that are in use.
type rules struct {
	*testing.T
	d    *pb.ProfilesDictionary
	used map[string]map[int32]bool // by table
}

// use checks a reference to a row of a table that has n rows.
func (r rules) use(table string, n int, id int32) {
	r.Helper()
	if id < 0 || int(id) >= n {
		r.Fatalf("%s %d of %d", table, id, n)
	}
	if r.used[table] == nil {
		r.used[table] = map[int32]bool{}
	}
	r.used[table][id] = true
}

func (r rules) text(id int32) { r.use("string", len(r.d.StringTable), id) }

func (r rules) attributes(list []int32) {
	keys := map[int32]bool{}
	for _, id := range list {
		r.use("attribute", len(r.d.AttributeTable), id)
		key := r.d.AttributeTable[id].KeyStrindex
		if keys[key] {
			r.Errorf("attribute %q occurs twice", r.d.StringTable[key])
		}
		keys[key] = true
	}
}

func (r rules) valueType(v *pb.ValueType) {
	r.text(v.GetTypeStrindex())
	r.text(v.GetUnitStrindex())
}

func (r rules) notNegative(what string, n int64) {
	if n < 0 {
		r.Errorf("%s %d", what, n)
	}
}

func (r rules) profile(p *pb.Profile) {
	r.valueType(p.SampleType)
	r.valueType(p.PeriodType)
	r.attributes(p.AttributeIndices)
	known := map[string]bool{}
	for _, s := range p.Samples {
		r.use("stack", len(r.d.StackTable), s.StackIndex)
		r.use("link", len(r.d.LinkTable), s.LinkIndex)
		r.attributes(s.AttributeIndices)
		if len(s.Values) != 1 || len(s.TimestampsUnixNano) != 0 {
			r.Errorf("sample with %d values and %d times, want 1 and 0", len(s.Values), len(s.TimestampsUnixNano))
		}
		identity := fmt.Sprint(s.StackIndex, s.LinkIndex, sorted(s.AttributeIndices))
		if known[identity] {
			r.Errorf("two samples with stack, link and attributes %s", identity)
		}
		known[identity] = true
	}
}

// dictionary checks the rows of all tables. It runs last, when all profiles have used theirs.
func (r rules) dictionary() {
	d := r.d
	for _, s := range d.StackTable {
		for _, id := range s.LocationIndices {
			r.use("location", len(d.LocationTable), id)
		}
	}
	for _, l := range d.LocationTable {
		r.use("mapping", len(d.MappingTable), l.MappingIndex)
		r.attributes(l.AttributeIndices)
		for _, line := range l.Lines {
			r.use("function", len(d.FunctionTable), line.FunctionIndex)
			r.notNegative("line", line.Line)
			r.notNegative("column", line.Column)
		}
	}
	for _, f := range d.FunctionTable {
		r.text(f.NameStrindex)
		r.text(f.SystemNameStrindex)
		r.text(f.FilenameStrindex)
		r.notNegative("first line", f.StartLine)
	}
	for _, m := range d.MappingTable {
		r.text(m.FilenameStrindex)
		r.attributes(m.AttributeIndices)
		if (m.MemoryStart != 0 || m.MemoryLimit != 0) && m.MemoryStart >= m.MemoryLimit {
			r.Errorf("mapping %q from %#x to %#x", d.StringTable[m.FilenameStrindex], m.MemoryStart, m.MemoryLimit)
		}
	}
	for _, a := range d.AttributeTable {
		r.text(a.KeyStrindex)
		r.text(a.UnitStrindex)
	}
	for i, l := range d.LinkTable {
		if i > 0 && (len(l.TraceId) != 16 || len(l.SpanId) != 8) {
			r.Errorf("link %d has a trace of %d bytes and a span of %d", i, len(l.TraceId), len(l.SpanId))
		}
	}
	checkTable(r, "string", d.StringTable, func(s string) string { return s })
	checkTable(r, "stack", d.StackTable, encoded)
	checkTable(r, "location", d.LocationTable, encoded)
	checkTable(r, "function", d.FunctionTable, encoded)
	checkTable(r, "mapping", d.MappingTable, func(m *pb.Mapping) string {
		m.AttributeIndices = sorted(m.AttributeIndices)
		return encoded(m)
	})
	checkTable(r, "attribute", d.AttributeTable, encoded)
	checkTable(r, "link", d.LinkTable, encoded)
}

func sorted(list []int32) []int32 { return slices.Sorted(slices.Values(list)) }

func encoded[M proto.Message](m M) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func checkTable[R any](r rules, name string, rows []R, key func(R) string) {
	r.Helper()
	if len(rows) == 0 || key(rows[0]) != "" {
		r.Fatalf("row 0 of the table of %ss is not the zero value", name)
	}
	known := map[string]int{}
	for i, row := range rows {
		if first, ok := known[key(row)]; ok {
			r.Errorf("%ss %d and %d are equal", name, first, i)
		}
		known[key(row)] = i
		if i > 0 && !r.used[name][int32(i)] {
			r.Errorf("nothing refers to %s %d", name, i)
		}
	}
}

// samplesIn describes the samples of p with the sums of their values, see samplesOf.
func samplesIn(p *profile.Profile) map[string]int64 {
	sums := map[string]int64{}
	for _, s := range p.Samples {
		task := p.Tasks[s.Task]
		labels := []string{"thread.name=" + valid(task.Comm)}
		if task.TID != 0 {
			labels = append(labels, fmt.Sprint("thread.id=", task.TID))
		}
		if s.CPU >= 0 {
			labels = append(labels, fmt.Sprint("cpu.logical_number=", s.CPU))
		}
		if s.End.Cut() {
			labels = append(labels, "fulgur.stack.end="+s.End.String())
		}
		slices.Sort(labels)
		var b strings.Builder
		fmt.Fprintln(&b, task.PID, strings.Join(labels, " "))
		for _, id := range p.AppendFrames(nil, s.Stack) {
			f := p.Frames[id]
			m := p.Mappings[f.Mapping]
			if fn := p.Functions[f.Function]; f.Function != 0 {
				fmt.Fprintf(&b, " %q %q %q:%d from %d\n", valid(fn.Name), valid(fn.SystemName), valid(fn.File), f.Line, fn.StartLine)
			}
			if !f.Inlined {
				fmt.Fprintf(&b, " at %#x of %q %q\n", f.Call(), valid(m.Path), valid(m.BuildID))
			}
		}
		for v, n := range s.Values {
			if n != 0 || v == 0 {
				sums[fmt.Sprintln(valid(p.ValueTypes[v].Type), valid(p.ValueTypes[v].Unit))+b.String()] += n
			}
		}
	}
	return sums
}

// samplesOf describes the decoded samples like samplesIn.
func samplesOf(data *pb.ProfilesData) map[string]int64 {
	d := data.Dictionary
	attribute := func(list []int32, key string) string {
		for _, id := range list {
			if a := d.AttributeTable[id]; d.StringTable[a.KeyStrindex] == key {
				return value(a.Value)
			}
		}
		return ""
	}
	sums := map[string]int64{}
	for _, r := range data.ResourceProfiles {
		pid := "0"
		for _, a := range r.Resource.Attributes {
			if a.Key == otelprofiles.PID {
				pid = value(a.Value)
			}
		}
		for _, p := range r.ScopeProfiles[0].Profiles {
			head := fmt.Sprintln(d.StringTable[p.SampleType.TypeStrindex], d.StringTable[p.SampleType.UnitStrindex])
			for _, s := range p.Samples {
				var labels []string
				for _, id := range s.AttributeIndices {
					a := d.AttributeTable[id]
					labels = append(labels, d.StringTable[a.KeyStrindex]+"="+value(a.Value))
				}
				slices.Sort(labels)
				var b strings.Builder
				fmt.Fprintln(&b, pid, strings.Join(labels, " "))
				for _, id := range d.StackTable[s.StackIndex].LocationIndices {
					l := d.LocationTable[id]
					m := d.MappingTable[l.MappingIndex]
					for _, line := range l.Lines {
						f := d.FunctionTable[line.FunctionIndex]
						fmt.Fprintf(&b, " %q %q %q:%d from %d\n", d.StringTable[f.NameStrindex], d.StringTable[f.SystemNameStrindex], d.StringTable[f.FilenameStrindex], line.Line, f.StartLine)
					}
					fmt.Fprintf(&b, " at %#x of %q %q\n", l.Address, d.StringTable[m.FilenameStrindex], attribute(m.AttributeIndices, otelprofiles.GNUBuildID))
				}
				sums[head+b.String()] += s.Values[0]
			}
		}
	}
	return sums
}

// value formats the value of an attribute.
func value(v *common.AnyValue) string {
	if n, ok := v.Value.(*common.AnyValue_IntValue); ok {
		return fmt.Sprint(n.IntValue)
	}
	return v.GetStringValue()
}

// describe formats a file for golden files: resources, scopes and the rest of what samples
// refer to. It does not depend on the order of tables.
func describe(data *pb.ProfilesData) string {
	var b strings.Builder
	d := data.Dictionary
	list := func(attributes []*common.KeyValue) {
		for _, a := range attributes {
			fmt.Fprintf(&b, "  %s=%q\n", a.Key, value(a.Value))
		}
	}
	for _, r := range data.ResourceProfiles {
		fmt.Fprintln(&b, "resource")
		list(r.Resource.Attributes)
		s := r.ScopeProfiles[0]
		fmt.Fprintf(&b, " scope %s\n", s.Scope.Name)
		list(s.Scope.Attributes)
		for _, p := range s.Profiles {
			v := func(v *pb.ValueType) string {
				return d.StringTable[v.TypeStrindex] + " " + d.StringTable[v.UnitStrindex]
			}
			var sum int64
			for _, s := range p.Samples {
				sum += s.Values[0]
			}
			fmt.Fprintf(&b, " profile %s: %d samples, sum %d, at %d for %d, period %d %s\n", v(p.SampleType), len(p.Samples), sum,
				p.TimeUnixNano, p.DurationNano, p.Period, v(p.PeriodType))
		}
	}
	for _, m := range d.MappingTable[1:] {
		fmt.Fprintf(&b, "mapping %#x-%#x %#x %q\n", m.MemoryStart, m.MemoryLimit, m.FileOffset, d.StringTable[m.FilenameStrindex])
	}
	for _, a := range d.AttributeTable[1:] {
		fmt.Fprintf(&b, "attribute %s=%q\n", d.StringTable[a.KeyStrindex], value(a.Value))
	}
	return b.String()
}
