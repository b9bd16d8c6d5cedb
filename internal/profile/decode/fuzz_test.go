package decode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"fulgur/internal/files/unpack"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/encode/speedscope"
	textenc "fulgur/internal/profile/encode/text"
)

// readAs decodes data in one format and checks the result: the profile is valid and
// within the limits, every encoder can write it, lossless formats give back the same
// values, and reading fails after the end of the context. It returns nil if decoding
// fails.
func readAs(t *testing.T, data []byte, format Format) *profile.Profile {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	in, err := unpacked(ended, bytes.NewReader(data))
	if err == nil {
		_, err = read(ended, in, format, "")
	}
	if err == nil {
		t.Fatal("got no error after the end of the context")
	}
	in, err = unpacked(t.Context(), bytes.NewReader(data))
	if err != nil {
		return nil
	}
	p, err := read(t.Context(), in, format, "")
	if errors.Is(err, profile.ErrInvalid) {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	writeAll(t, p)
	return p
}

// writeAll writes p with every encoder, and reads the formats that have decoders.
func writeAll(t *testing.T, p *profile.Profile) {
	t.Helper()
	if len(p.ValueTypes) == 0 {
		return
	}
	total := func(name string, written []byte, format Format, value int) int64 {
		t.Helper()
		in, err := unpacked(t.Context(), bytes.NewReader(written))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := read(t.Context(), in, format, "")
		if err != nil {
			t.Fatalf("%s: reading its own output: %v", name, err)
		}
		return again.Total(value)
	}
	whole := func(name string, written []byte, format Format, value int, want int64) {
		t.Helper()
		if got := total(name, written, format, value); got != want {
			t.Fatalf("%s: got a total of %[4]d for value %[2]d after a round trip, want %[3]d", name, value, want, got)
		}
	}
	for v := range p.ValueTypes {
		lines := encoded(t, func(w io.Writer) error { return folded.Write(w, p, folded.Options{Value: v}) })
		// The format has positive numbers only, and rounds times.
		if want := p.Total(v); want != 0 && want <= math.MaxInt64/2 && !hasNegative(p, v) {
			_, amount := profile.PrintedUnit(p.ValueTypes[v].Unit)
			off := int64(len(p.Samples)) * (amount / 2)
			if got := total("folded", lines, Folded, 0); got < want-off || got > want+off {
				t.Fatalf("folded: got a total of %d for value %d after a round trip, want %d", got, v, want)
			}
		}
		if err := flame.WriteSVG(io.Discard, p, flame.Options{Value: v}); err != nil {
			t.Fatal(err)
		}
		page := encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, p, flame.Options{Value: v}) })
		if len(p.Samples) > 0 {
			whole("page", page, Page, v, p.Total(v))
		}
	}
	if err := speedscope.Write(io.Discard, p); err != nil {
		t.Fatal(err)
	}
	if err := textenc.Write(io.Discard, p, textenc.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := firefox.WriteProfile(io.Discard, p, firefox.Options{}); err != nil {
		t.Fatal(err)
	}
	packed := encoded(t, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) })
	for v := range p.ValueTypes {
		whole("pprof", packed, Pprof, v, p.Total(v))
	}
	if data := encoded(t, func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) }); len(p.Samples) > 0 && !hasTwins(p) {
		for v := range p.ValueTypes {
			whole("OTLP", data, OTLP, v, p.Total(v))
		}
	}
	if d := profile.Diff([]*profile.Profile{p.Only(0)}, []*profile.Profile{p.Only(0)}, 1); d.Total(0) != d.Total(1) {
		t.Fatalf("got totals %d and %d comparing a profile with itself, want equal ones", d.Total(0), d.Total(1))
	}
}

// hasTwins reports whether a type of value occurs twice, which OTLP cannot express.
func hasTwins(p *profile.Profile) bool {
	seen := map[profile.ValueType]bool{}
	for _, v := range p.ValueTypes {
		valid := profile.ValueType{Type: strings.ToValidUTF8(v.Type, "\uFFFD"), Unit: strings.ToValidUTF8(v.Unit, "\uFFFD")}
		if seen[valid] {
			return true
		}
		seen[valid] = true
	}
	return false
}

func hasNegative(p *profile.Profile, v int) bool {
	for _, s := range p.Samples {
		if s.Values[v] < 0 {
			return true
		}
	}
	return false
}

func addFile(f *testing.F, elements ...string) {
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
}

// isPacked reports whether the readers see other bytes than data.
func isPacked(data []byte) bool {
	return unpack.Of(data) != nil || bytes.HasPrefix(data, []byte(utf8Mark)) || bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}

// The total of folded stacks is the sum of the numbers at the line ends.
func FuzzFolded(f *testing.F) {
	f.Add([]byte(fold(f, encodetest.Threads(), 0)))
	f.Add([]byte(fold(f, encodetest.Hostile(), 0)))
	f.Add([]byte("a;b;-;c_[k];d_[i] 3\n# comment\n[CPU 1];x-1/2;y 4\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := readAs(t, data, Folded)
		if p == nil || isPacked(data) {
			return
		}
		want, unread, stated := int64(0), uint64(0), false
		for line := range bytes.Lines(data) {
			line = bytes.TrimRight(line, "\r\n")
			if h, ok := folded.ParseHeader(string(line)); ok {
				if len(h.Values) > 1 {
					return // a comparison
				}
				stated = true
			}
			if len(bytes.TrimSpace(line)) == 0 || folded.IsComment(string(line)) {
				continue
			}
			line = bytes.TrimRight(line, " \t")
			at := bytes.LastIndexAny(line, " \t") + 1
			n, err := strconv.ParseInt(string(line[at:]), 10, 64)
			stack := bytes.TrimRight(line[:at], " \t")
			switch {
			case len(stack) == 0 || !stated && (bytes.HasSuffix(stack, []byte(" =")) || bytes.HasSuffix(stack, []byte(":")) && !bytes.Contains(stack, []byte(";"))):
				unread++
			case err != nil:
				if _, err := strconv.ParseFloat(string(line[at:]), 64); err == nil {
					return // a fraction
				}
				unread++
			default:
				want += n
			}
		}
		if got := p.Losses[profile.LossUnread]; got != unread {
			t.Errorf("got %d lines that were not read, want %d", got, unread)
		}
		if got := p.Total(0); got != want && len(p.ValueTypes) == 1 && !stated {
			t.Errorf("got total %[2]d, want %[1]d", want, got)
		}
	})
}

// perf script's output has at least as many samples as heads with a time, and at most as many as
// lines that are not empty.
func FuzzPerfScript(f *testing.F) {
	addFile(f, "testdata", "perf-script.txt")
	f.Add([]byte("a b 1/2 [001] 1.5: 7 cycles:Pu:\n\t1 f+0x1 (inlined)\n\tffffffff81000000 g ([kernel.kallsyms])\n\n"))
	f.Add([]byte("a 1 1.5: 9223372036854775807 x:\n\ta 1 1.5: 1 x:\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := readAs(t, data, PerfScript)
		if p == nil || isPacked(data) {
			return
		}
		least, most := int64(0), int64(0)
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\r\n")
			if strings.TrimSpace(line) == "" {
				continue
			}
			most++
			if h, ok := parseHead(line); ok && h.timed && !strings.ContainsAny(line[:1], "\t#") && !strings.Contains(line, "PERF_RECORD_") &&
				!strings.Contains(line, "metric: ") && h.callers == "" {
				least++
			}
		}
		var got int64
		for i, v := range p.ValueTypes {
			if v.Unit == "count" && (v.Type == "samples" || strings.HasSuffix(v.Type, " samples")) {
				got += p.Total(i)
			}
		}
		if got < least || got > most {
			t.Errorf("got %d samples, want %d to %d", got, least, most)
		}
	})
}

// The total of bpftrace's maps is at most the sum of the numbers at the ends of entries.
func FuzzBpftrace(f *testing.F) {
	addFile(f, "testdata", "bpftrace.txt")
	f.Add([]byte("@[\n    a+1\n,\n    b+2\n, tar, 7]: 42\n@x[tar]: -1\n@y[\n]: 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := readAs(t, data, Bpftrace)
		if p == nil || isPacked(data) {
			return
		}
		limit := 0.0
		for line := range strings.Lines(string(data)) {
			if i := strings.LastIndex(line, "]: "); i >= 0 {
				if n, err := strconv.ParseFloat(strings.TrimSpace(line[i+3:]), 64); err == nil {
					limit += math.Abs(n)
				}
			}
		}
		got := 0.0
		for v := range p.ValueTypes {
			for _, s := range p.Samples {
				got += math.Abs(float64(s.Values[v]))
			}
		}
		if got > limit*(1+1e-9) {
			t.Errorf("got total %[2]g, want at most %[1]g", limit, got)
		}
	})
}

// Totals of pprof profiles match the pprof library's.
func FuzzPprof(f *testing.F) {
	for _, p := range []*profile.Profile{encodetest.Threads(), encodetest.Typical(), encodetest.Symbols(), encodetest.Hostile()} {
		packed := encoded(f, func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) })
		f.Add(packed)
		in, err := unpacked(f.Context(), bytes.NewReader(packed))
		if err != nil {
			f.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := readAs(t, data, Pprof)
		if p == nil {
			return
		}
		in, err := ParsePprof(t.Context(), bytes.NewReader(data))
		if err != nil {
			t.Fatalf("got a profile that the pprof library refuses: %v", err)
		}
		for v := range p.ValueTypes {
			want := int64(0)
			for _, s := range in.Sample {
				want += s.Value[v]
			}
			if got := p.Total(v); got != want {
				t.Errorf("value %d: got total %[3]d, want %[2]d", v, want, got)
			}
		}
	})
}

// FuzzOTLPJSON reads any text as OTLP in JSON.
func FuzzOTLPJSON(f *testing.F) {
	for _, p := range []*profile.Profile{encodetest.Threads(), encodetest.Typical(), encodetest.Hostile()} {
		f.Add(encoded(f, func(w io.Writer) error { return otlp.WriteJSON(w, p, otlp.Options{}) }))
	}
	f.Add([]byte(`{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"samples":[{"values":["1",2,null],"timestampsUnixNano":["3"]}]}]}]}],"dictionary":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) { readAs(t, data, OTLPJSON) })
}

// Totals of OTLP profiles match those that OpenTelemetry's messages decode to.
func FuzzOTLP(f *testing.F) {
	for _, p := range []*profile.Profile{encodetest.Threads(), encodetest.Typical(), encodetest.Symbols(), encodetest.Hostile()} {
		f.Add(encoded(f, func(w io.Writer) error { return otlp.Write(w, p, otlp.Options{}) }))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := readAs(t, data, OTLP)
		var in pb.ProfilesData
		if p == nil || proto.Unmarshal(data, &in) != nil {
			return // the decoder skips the malformed rest
		}
		text := func(i int32) string {
			if i < 0 || int(i) >= len(in.GetDictionary().GetStringTable()) {
				return ""
			}
			return in.Dictionary.StringTable[i]
		}
		want := map[profile.ValueType]int64{}
		for _, r := range in.ResourceProfiles {
			for _, s := range r.ScopeProfiles {
				for _, q := range s.Profiles {
					v := profile.ValueType{Type: text(q.GetSampleType().GetTypeStrindex()), Unit: text(q.GetSampleType().GetUnitStrindex())}
					for _, s := range q.Samples {
						if len(s.Values) == 0 {
							want[v] += int64(len(s.TimestampsUnixNano))
						}
						for _, n := range s.Values {
							want[v] += n
						}
					}
				}
			}
		}
		for i, v := range p.ValueTypes {
			if got := p.Total(i); got != want[v] {
				t.Errorf("value %v: got total %d, want %d", v, got, want[v])
			}
		}
	})
}

// The total weight of the Firefox Profiler's samples matches the weights that
// encoding/json decodes.
func FuzzFirefox(f *testing.F) {
	for _, name := range []string{"threads.json", "symbols.json", "timeline.json", "empty.json"} {
		addFile(f, "..", "encode", "firefox", "testdata", name)
	}
	for _, name := range []string{"samply-49.json", "samply-66.json"} {
		addFile(f, "testdata", name)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := readAs(t, data, Firefox)
		if p == nil {
			return
		}
		checkTimes(t, data, p)
		if isPacked(data) {
			return
		}
		var in struct {
			Threads []struct {
				Samples struct {
					Stack      []*int
					Weight     []float64
					WeightType string
				}
			}
		}
		if err := json.NewDecoder(bytes.NewReader(data)).Decode(&in); err != nil {
			return // the decoder skips the malformed parts
		}
		want, n := 0.0, 0
		for _, thread := range in.Threads {
			scale := 1e6
			switch thread.Samples.WeightType {
			case "bytes", "samples", "": // the front end's default is samples
				scale = 1
			}
			for i := range thread.Samples.Stack {
				weight := 1.0
				if thread.Samples.Weight != nil {
					weight = thread.Samples.Weight[i]
				}
				want += weight * scale
				n++
			}
		}
		got, limit := 0.0, 0.0
		for v := range p.ValueTypes {
			got += float64(p.Total(v))
			limit = max(limit, math.Abs(got))
		}
		if math.Abs(got-want) > float64(n)+1e-6*max(limit, math.Abs(want)) && !repeatsKeys(data) {
			t.Errorf("got total weight %[2]g, want %[1]g", want, got)
		}
	})
}

// checkTimes checks that data read with its times is the profile p, that its events are
// sorted and add up to p, and that a page can be written.
func checkTimes(t *testing.T, data []byte, p *profile.Profile) {
	t.Helper()
	in, err := unpacked(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	d, err := readFirefox(t.Context(), in, true)
	if err != nil {
		return // the times are malformed, or take too much memory
	}
	if diff := cmp.Diff(totals(p), totals(d.Profile)); diff != "" {
		t.Fatalf("values (-without times +with times):\n%s", diff)
	}
	if d.Times == nil {
		return
	}
	line := d.Times.Timeline(d.Profile, func(s profile.StackID) profile.StackID { return s })
	if diff := cmp.Diff(totals(p), sumsOf(t, line)); diff != "" {
		t.Fatalf("sums (-profile +times):\n%s", diff)
	}
	if err := flame.WriteHTML(io.Discard, d.Profile, flame.Options{Times: line}); err != nil {
		t.Fatal(err)
	}
	if err := firefox.Write(io.Discard, line, firefox.Options{}); err != nil {
		t.Fatal(err)
	}
}

// repeatsKeys reports whether an object repeats a key, ignoring case as encoding/json
// does.
func repeatsKeys(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	var objects []map[string]bool // around the token, nil for arrays
	isKey := false
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				objects = append(objects, map[string]bool{})
			case '[':
				objects = append(objects, nil)
			default:
				objects = objects[:len(objects)-1]
			}
		case string:
			if isKey {
				key, seen := strings.ToLower(token), objects[len(objects)-1]
				if seen[key] {
					return true
				}
				seen[key], isKey = true, false
				continue // the value follows
			}
		}
		if len(objects) == 0 {
			return false
		}
		isKey = objects[len(objects)-1] != nil
	}
}

// The JSON reader skips a value up to the same offset as encoding/json, and decodes
// strings and numbers like it.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2,{"b":null}],"c":"\u00e4\ud83d\ude00\""} 7`, `"x\\" `, `-12.5e3,`, `123456789012345678`, `[[[]]]]`, `"\ud800x"`, "\"\xff\"", `1e400`, `true`, `-`, `nul`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := func() *jsonReader { return &jsonReader{r: bufio.NewReader(bytes.NewReader(data))} }
		d := json.NewDecoder(bytes.NewReader(data))
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			if _, err := reader().string(); err == nil && !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("null")) {
				t.Errorf("got a string, encoding/json has %v", err)
			}
			return
		}
		j := reader()
		isNested := raw[0] == '{' || raw[0] == '[' // other text may end with the value, or inside a word
		if err := j.skip(); err != nil && isNested && !strings.Contains(err.Error(), "nested") {
			t.Fatalf("%q: %v", raw, err)
		} else if err == nil && isNested && j.offset != d.InputOffset() {
			t.Errorf("%q: got offset %d after skipping, want encoding/json's %d", data, j.offset, d.InputOffset())
		}
		var s string
		if raw[0] == '"' && json.Unmarshal(raw, &s) == nil && len(s) < profile.MaxName {
			if got, err := reader().string(); err != nil || got != s {
				t.Errorf("%s: got %q, %v, want %q", raw, got, err, s)
			}
		}
		var v float64
		if raw[0] != 'n' && json.Unmarshal(raw, &v) == nil {
			r := &jsonReader{r: bufio.NewReader(bytes.NewReader(raw))}
			if got, _, err := r.number(); err != nil || got != v {
				t.Errorf("%s: got %v, %v, want %v", raw, got, err, v)
			}
		}
	})
}

// Input in any format is decoded the same when its detected format is given.
func FuzzRead(f *testing.F) {
	f.Add([]byte(fold(f, encodetest.Threads(), 0)))
	f.Add(encoded(f, func(w io.Writer) error { return pprof.Write(w, encodetest.Threads(), pprof.Options{}) }))
	f.Add(encoded(f, func(w io.Writer) error { return firefox.WriteProfile(w, encodetest.Threads(), firefox.Options{}) }))
	addFile(f, "testdata", "perf-script.txt")
	addFile(f, "testdata", "bpftrace.txt")
	f.Fuzz(func(t *testing.T, data []byte) {
		p, format, err := Read(t.Context(), bytes.NewReader(data), "fuzz")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz: ") {
				t.Errorf("got an error without the input's name: %v", err)
			}
			return
		}
		if again := readAs(t, data, format); again == nil || again.Total(0) != p.Total(0) {
			t.Errorf("reading as %s gives another profile", format)
		}
	})
}
