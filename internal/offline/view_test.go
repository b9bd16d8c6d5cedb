package offline

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/capture/naming"
	"fulgur/internal/message/usage"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/timeline/timelinetest"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
)

// landmarkFile returns this program, which is linked to fixed addresses, and landmark's
// address in it.
func landmarkFile(t *testing.T) (file *elffile.File, address uint64) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if file, err = elffile.Open(exe); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	address = uint64(reflect.ValueOf(landmark).Pointer())
	if _, ok := file.Offset(address); !ok || file.Base() == 0 {
		testenv.Unsupported(t, "this program is not linked to fixed addresses")
	}
	return file, address
}

// Formats store addresses relative to the file's lowest one, or to its mapping. Reading
// them gives link-time addresses.
func TestLinkAddresses(t *testing.T) {
	file, address := landmarkFile(t)
	b := profile.NewBuilder(profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	mapping := b.Mapping(profile.Mapping{Path: file.Name(), BuildID: file.BuildID(), Base: file.Base()})
	name := b.Function(profile.Function{Name: "landmark"})
	frame := b.Frame(profile.Frame{Mapping: mapping, Function: name, Address: address})
	unnamed := b.Frame(profile.Frame{Mapping: mapping, Address: address + 1, Return: true})
	b.Add(profile.Sample{Stack: b.Push(b.Push(0, unnamed), frame), Task: b.Task(profile.Task{PID: 1, Comm: "test"}), CPU: -1, Values: []int64{1}})
	var written bytes.Buffer
	if err := firefox.WriteProfile(&written, b.Profile(profile.Meta{}, profile.Losses{}), firefox.Options{}); err != nil {
		t.Fatal(err)
	}
	offset, _ := file.Offset(address)
	const start, skew = 0x7f0000000000, 0x1000
	mapped := &pprof.Mapping{ID: 1, Start: start, Limit: start + 1<<30, Offset: skew, File: file.Name(), BuildID: file.BuildID()}
	fn := &pprof.Function{ID: 1, Name: "landmark"}
	location := &pprof.Location{ID: 1, Mapping: mapped, Address: offset - skew + start, Line: []pprof.Line{{Function: fn}}}
	theirs := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
		Sample:     []*pprof.Sample{{Location: []*pprof.Location{location}, Value: []int64{1}}},
		Mapping:    []*pprof.Mapping{mapped}, Location: []*pprof.Location{location}, Function: []*pprof.Function{fn},
	}
	var mappedElsewhere bytes.Buffer
	if err := theirs.Write(&mappedElsewhere); err != nil {
		t.Fatal(err)
	}
	for format, contents := range map[decode.Format]io.Reader{decode.Firefox: &written, decode.Pprof: &mappedElsewhere} {
		d, err := decode.ReadWith(t.Context(), contents, "test", decode.Options{})
		if err != nil || d.Format != format {
			t.Fatalf("got format %s: %v, want %s", d.Format, err, format)
		}
		p := d.Profile
		linkAddresses(t.Context(), d, nil)
		leaf := p.Frames[p.Stacks[p.Samples[0].Stack].Frame]
		if leaf.Address != address || p.Mappings[leaf.Mapping].Base != file.Base() {
			t.Errorf("%s: got address %#x, base %#x; want %#x, %#x", format, leaf.Address, p.Mappings[leaf.Mapping].Base, address, file.Base())
		}
		for _, f := range p.Frames[1:] {
			if f.Function == 0 && (f.Address != address+1 || !f.Return) {
				t.Errorf("%s: got frame without a name %+v, want address %#x", format, f, address+1)
			}
		}
	}
}

// write writes a file into a directory of the test.
func write(t *testing.T, name, contents string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// perfDataPath returns the path of a file of perf.
func perfDataPath(t *testing.T) string {
	t.Helper()
	packed, err := os.Open(filepath.Join("..", "perfdata", "testdata", "propeller_sample_1.perfdata1.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "perf.data", string(data))
}

// The times of perf.data are read if the page is to show them.
func TestShownTimes(t *testing.T) {
	path := perfDataPath(t)
	for _, times := range []wanted{allTimes, recordedTimes, noTimes} {
		s, err := readShown(t.Context(), path, debugfiletest.NewFinder(t), times, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		if (s.Times != nil) != (times == allTimes) {
			t.Errorf("got times %v, want some: %v", s.Times, times == allTimes)
		}
		if s.Times != nil && len(s.Times.Threads) == 0 {
			t.Error("got times without a thread")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestViewErrors(t *testing.T) {
	folded := write(t, "a.folded", "main;work 3\n")
	cpu := write(t, "b.txt", "@[\n\n    work+1\n, main]: 3\n")
	tests := map[string]struct {
		o    ViewOptions
		code int
		want string
	}{
		"missing":       {ViewOptions{Input: "/nowhere/a.folded"}, 1, "no such file"},
		"base missing":  {ViewOptions{Input: folded, Base: "/nowhere/b.folded"}, 1, "no such file"},
		"both stdin":    {ViewOptions{Input: "-", Base: "-"}, 2, "standard input"},
		"unknown value": {ViewOptions{Input: folded, Base: cpu, Value: "bytes"}, 2, `no value "bytes"`},
		"nor without":   {ViewOptions{Input: folded, Value: "bytes"}, 2, `no value "bytes"`},
		"no address":    {ViewOptions{Input: folded, Listen: "not an address"}, 1, "not an address"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Stderr, test.o.NoOpen = io.Discard, true
			code, err := View(t.Context(), test.o)
			if code != test.code || err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, usage.Err) != (code == 2) {
				t.Errorf("got %d, %v; want %d, %q", code, err, test.code, test.want)
			}
		})
	}
}

// listener is a writer that passes each line to seen.
type listener struct{ seen func(string) }

func (l listener) Write(b []byte) (int, error) {
	l.seen(string(b))
	return len(b), nil
}

func TestViewUntilInterrupted(t *testing.T) {
	file := write(t, "a.folded", "main;work 3\n")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	served := false
	stderr := listener{func(text string) {
		served = served || strings.Contains(text, "http://127.0.0.1:")
		if strings.Contains(text, "Ctrl-C") {
			interrupt()
		}
	}}
	if code, err := View(ctx, ViewOptions{Input: file, Base: file, NoOpen: true, Stderr: stderr}); code != 0 || err != nil || !served {
		t.Errorf("got %d, %v; served: %v, want 0 and true", code, err, served)
	}
}

// Sources can be embedded only in a profile for the Firefox Profiler.
func TestEmbedSources(t *testing.T) {
	file, address := landmarkFile(t)
	found, err := symbolizeAt(t, file, address)
	if err != nil || len(found) == 0 || !filepath.IsAbs(found[0].File) {
		testenv.Unsupported(t, "the source of this program is not known: %+v, %v", found, err)
	}
	input := filepath.Join(t.TempDir(), "in.json.gz")
	out, err := os.Create(input)
	if err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder(profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	if _, err := os.Stat(found[0].File); err != nil {
		testenv.Skip(t, "needs the source tree")
	}
	mapping := b.Mapping(profile.Mapping{Path: file.Name(), BuildID: file.BuildID(), Base: file.Base()})
	for _, source := range []string{found[0].File, "/etc/passwd"} {
		fn := b.Function(profile.Function{Name: "landmark", File: source})
		b.Add(profile.Sample{
			Stack: b.Push(0, b.Frame(profile.Frame{Mapping: mapping, Function: fn, Address: address})),
			Task:  b.Task(profile.Task{PID: 1, Comm: "test"}), CPU: -1, Values: []int64{1},
		})
	}
	if err := errors.Join(firefox.WriteProfile(out, b.Profile(profile.Meta{}, profile.Losses{}), firefox.Options{}), out.Close()); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	output := filepath.Join(t.TempDir(), "out.json.gz")
	if code, err := Convert(t.Context(), ConvertOptions{Input: input, Output: output, EmbedSources: true, Stderr: &stderr}); code != 0 || err != nil {
		t.Fatalf("got %d, %v; want 0", code, err)
	}
	text := gunzip(t, output)
	if !strings.Contains(text, `func landmark() error`) {
		t.Error("got a profile without the source")
	}
	if strings.Contains(text, "root:x:") || !strings.Contains(stderr.String(), "/etc/passwd") {
		t.Errorf("path that is no source file: got messages %s, want one about it", &stderr)
	}
	code, err := Convert(t.Context(), ConvertOptions{Input: input, Output: "out.svg", EmbedSources: true, Stderr: io.Discard})
	if code != 2 || !errors.Is(err, usage.Err) {
		t.Errorf("sources in an SVG: got %d, %v; want a usage error", code, err)
	}
	code, err = Convert(t.Context(), ConvertOptions{Input: input, Output: "out.folded", Inverted: true, Stderr: io.Discard})
	if code != 2 || !errors.Is(err, usage.Err) {
		t.Errorf("inverted text: got %d, %v; want a usage error", code, err)
	}
}

func symbolizeAt(t *testing.T, file *elffile.File, address uint64) ([]symbolize.Frame, error) {
	t.Helper()
	names := symbolize.NewELF(file, symbolize.Options{})
	found, err := names.LookupBatch([]uint64{address})
	return found[0], err
}

func gunzip(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A recording has its times without asking, a profile for the Firefox Profiler without times
// has none.
func TestRecordedTimes(t *testing.T) {
	line := timelinetest.Recording(t)
	for name, c := range map[string]struct {
		write func(io.Writer) error
		want  bool
	}{
		"recording": {func(w io.Writer) error { return firefox.Write(w, line, firefox.Options{}) }, true},
		"profile":   {func(w io.Writer) error { return firefox.WriteProfile(w, encodetest.Typical(), firefox.Options{}) }, false},
	} {
		var b bytes.Buffer
		if err := c.write(&b); err != nil {
			t.Fatal(err)
		}
		for _, times := range []wanted{recordedTimes, noTimes} {
			in, err := readInput(t.Context(), write(t, "x.json.gz", b.String()), "", "", times, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			if (in.line != nil) != (c.want && times == recordedTimes) || in.line != nil && in.hasTimes() != nil {
				t.Errorf("%s: got times %v, want some: %v", name, in.line, c.want)
			}
		}
	}
}

// Samples of the main event of perf.data are time on the CPU, the others are markers.
func TestPerfTimes(t *testing.T) {
	times, err := newPerfTimes()
	if err != nil {
		t.Fatal(err)
	}
	defer times.recorder.Close()
	cycles, misses := profile.ValueType{Type: "cycles", Unit: "count"}, profile.ValueType{Type: "cache-misses", Unit: "count"}
	for i := range int64(6) {
		s := perfdata.ChainSample{PID: 7, TID: 7, Comm: "server", Time: 1000 + i, Weight: 10, Amount: 100 + i, Event: cycles, Main: true}
		if i%2 == 1 {
			s.Event, s.Main = misses, false
		}
		if err := times.add(s); err != nil {
			t.Fatal(err)
		}
	}
	line, err := times.timeline(&profile.Profile{}, &naming.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	if line.Sampled != cycles || len(line.MarkerTypes) != 1 || line.MarkerTypes[0].Value() != misses || line.Interval != 10 {
		t.Errorf("got samples of %v, markers of %v, an interval of %d; want %v, %v, 10", line.Sampled, line.MarkerTypes, line.Interval, cycles, misses)
	}
}
