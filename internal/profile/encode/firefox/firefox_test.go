package firefox

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/profile/timeline"
	"fulgur/internal/profile/timeline/timelinetest"
)

// golden compares a profile with a golden file that contains it indented.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, plain, "", " "); err != nil {
		t.Fatal(err)
	}
	encodetest.Golden(t, name, pretty.Bytes())
}

func TestWriteProfile(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"threads": encodetest.Threads(),
		"symbols": encodetest.Symbols(),
		"empty":   encodetest.Empty(),
		"typical": encodetest.Typical(),
		"hostile": encodetest.Hostile(),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := WriteProfile(&out, p, Options{}); err != nil {
				t.Fatal(err)
			}
			got := firefoxtest.Check(t, out.Bytes())
			var sum float64
			for _, k := range got.Threads {
				sum += total(t, k)
			}
			if want := float64(p.Total(1)) / 1e6; math.Abs(sum-want) > 1e-6 {
				t.Errorf("got a weight of %v ms, want %v", sum, want)
			}
			if name == "threads" || name == "symbols" || name == "empty" {
				golden(t, name+".json", out.Bytes())
			}
		})
	}
}

// total returns the total weight of a thread's samples.
func total(t *testing.T, k firefoxtest.Thread) (sum float64) {
	t.Helper()
	weights, err := k.Samples.Numbers("weight", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range weights {
		sum += w
	}
	return sum
}

// Values other than time are pseudo-threads.
func TestWriteProfileOfSeveralValues(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "requests", Unit: "count"}, profile.ValueType{Type: "io", Unit: "bytes"}, profile.ValueType{Type: "latency", Unit: "nanoseconds"})
	b.Add(profile.Sample{
		Stack: b.Push(0, b.Frame(profile.Frame{Address: 1})), Task: b.Task(profile.Task{PID: 7, Comm: "tar"}), CPU: -1,
		Values: []int64{2, 8192, 3_000_000},
	})
	var out bytes.Buffer
	if err := WriteProfile(&out, b.Profile(profile.Meta{}, profile.Losses{}), Options{}); err != nil {
		t.Fatal(err)
	}
	got := firefoxtest.Check(t, out.Bytes())
	want := []struct {
		name, weightType string
		weight           float64
	}{{"tar", `"tracing-ms"`, 3}, {"requests", `"samples"`, 2}, {"io", `"bytes"`, 8192}}
	if len(got.Threads) != len(want) {
		t.Fatalf("got %d threads, want %d", len(got.Threads), len(want))
	}
	for i, w := range want {
		k := got.Threads[i]
		if *k.Name != w.name || string(k.Samples["weightType"]) != w.weightType || total(t, k) != w.weight {
			t.Errorf("thread %d: got %s with %v %s, want %v", i, *k.Name, total(t, k), k.Samples["weightType"], w)
		}
	}
	// A latency is not CPU time.
	if used, err := got.Threads[0].Samples.Numbers("threadCPUDelta", math.NaN()); err != nil || !slices.Equal(used, []float64{0}) {
		t.Errorf("got CPU times %v, %v, want none", used, err)
	}
	if got := got.Meta.InitialVisibleThreads; !slices.Equal(got, []int{0}) {
		t.Errorf("got %v as the visible threads, want the one of time", got)
	}
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	line := timelinetest.Recording(t)
	if err := Write(&out, line, Options{}); err != nil {
		t.Fatal(err)
	}
	got := firefoxtest.Check(t, out.Bytes())
	golden(t, "timeline.json", out.Bytes())

	main := got.Threads[0]
	if *main.Name != "tar" || *main.PID != "42" || *got.Threads[len(got.Threads)-1].PID != "42.1" {
		t.Errorf("got threads %+v, want tar's first", got.Threads)
	}
	// Six milliseconds on the CPU, plus the events off it.
	if w, want := total(t, main), 6+20.000001+0.3; math.Abs(w-want) > 1e-9 {
		t.Errorf("main thread: got a weight of %v ms, want %v", w, want)
	}
	used, err := main.Samples.Numbers("threadCPUDelta", math.NaN())
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{0, 1e6, 1e6, 1e6, 1e6, 500_000, 0, 499_999, 1e6, 0}; !slices.Equal(used, want) {
		t.Errorf("got CPU times %v, want %v", used, want)
	}
	markers := func(k firefoxtest.Thread) string { return string(k.Markers["length"]) }
	// A name, a wait above the minimum, two requests, and two hits.
	if markers(main) != "6" || markers(got.Threads[1]) != "2" {
		t.Errorf("got %s and %s markers, want 6 and 2", markers(main), markers(got.Threads[1]))
	}
}

// The profile contains sources on request.
func TestSources(t *testing.T) {
	var out bytes.Buffer
	err := WriteProfile(&out, encodetest.Typical(), Options{Source: func(file string) (string, bool) {
		return "int main;", file == "/src/server/main.cc"
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := firefoxtest.Check(t, out.Bytes())
	var content []*string
	if err := json.Unmarshal(p.Shared.Sources["content"], &content); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, text := range content {
		if text != nil && *text == "int main;" {
			n++
		}
	}
	if n != 1 || len(content) < 2 {
		t.Errorf("got text in %d of %d sources, want one", n, len(content))
	}
}

func TestErrors(t *testing.T) {
	if err := WriteProfile(encodetest.FullDisk{}, encodetest.Typical(), Options{}); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
	if err := WriteProfile(io.Discard, &profile.Profile{}, Options{}); err == nil {
		t.Error("got no error for a profile without values")
	}
}

func TestBreakpadID(t *testing.T) {
	for id, want := range map[string]string{
		// From dump_syms for these build IDs.
		"5f1c0de0a1b2c3d4e5f60718293a4b5c6d7e8f90": "E00D1C5FB2A1D4C3E5F60718293A4B5C0",
		"0102":     "000002010000000000000000000000000",
		"":         "000000000000000000000000000000000",
		"not hex!": "000000000000000000000000000000000",
	} {
		if got := BreakpadID(id); got != want {
			t.Errorf("BreakpadID(%q) = %s, want %s", id, got, want)
		}
	}
}

func TestMillis(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0", 1: "0.000001", 1_000_000: "1", 1_500_000: "1.5", -20_000_001: "-20.000001", 999_999: "0.999999",
	} {
		if got := string(appendMillis(nil, ns)); got != want {
			t.Errorf("%d ns: got %s ms, want %s", ns, got, want)
		}
	}
}

func TestWriteProfileIsLinear(t *testing.T) {
	encodetest.Linear(t, func(w io.Writer, p *profile.Profile) error { return WriteProfile(w, p, Options{}) })
}

func BenchmarkWriteProfile(b *testing.B) {
	p := encodetest.Large(20_000)
	for b.Loop() {
		if err := WriteProfile(io.Discard, p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// Memory holds only the tables: it does not grow with the number of events.
func TestWriteStreams(t *testing.T) {
	const start = 1_000_000_000
	allocated := func(events int) uint64 {
		r, err := timeline.NewRecorder(start)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p := encodetest.Typical()
		id := r.Thread(r.Process(1, 0), 1, 0)
		for i := range int64(events) {
			at, stack := int64(start)+i*1_000_000, profile.StackID(i%int64(len(p.Stacks)))
			if err := errors.Join(
				r.AddOnCPU(id, profile.OnCPU{Time: at, Stack: stack, Weight: 500_000}),
				r.AddOffCPU(id, profile.OffCPU{Start: at, Duration: 500_000, Stack: stack}),
			); err != nil {
				t.Fatal(err)
			}
		}
		line, err := r.Timeline(p, start, func(s profile.StackID) profile.StackID { return s })
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Write(io.Discard, line, Options{}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := allocated(1_000), allocated(50_000)
	if many > few+few/2+100_000 {
		t.Errorf("got %d bytes allocated for a thousand events, %d for fifty thousand; want about the same", few, many)
	}
}
