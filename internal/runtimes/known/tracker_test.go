package known

import (
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/threadctx"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// Unused files are removed, so a tracker does not grow with time.
func TestTrackerPrunes(t *testing.T) {
	tracker := NewTracker(nil)
	kept := new(process.File)
	for i := range minPrune {
		f := new(process.File)
		if i == 0 {
			f = kept
		}
		tracker.files[weak.Make(f)] = file{}
	}
	runtime.GC()
	for _, m := range process.NewTable(process.Options{}).Mappings(os.Getpid()) {
		if m.File != nil {
			tracker.file(m.File)
			break
		}
	}
	if n := len(tracker.files); n > 10 {
		t.Errorf("got %d files left, want at most 10", n)
	}
	if _, ok := tracker.files[weak.Make(kept)]; !ok {
		t.Error("a file in use was removed")
	}
	runtime.KeepAlive(kept)
}

type noPlaces struct{}

func (noPlaces) Places(runtimes.Frame) ([]runtimes.Place, bool) { return nil, false }

func (noPlaces) Kept() int { return 0 }

// A runtime that is not ready is read again, less and less often. The kernel side requests
// the process until the runtime is ready.
func TestTrackerRetries(t *testing.T) {
	tracker := NewTracker(nil)
	now := time.Unix(0, 0)
	tracker.now = func() time.Time { return now }
	var tries []time.Duration
	result := runtimes.ErrNotReady
	build := &runtimes.Build{Open: func(e *bpf.RuntimeProcess, _ uint64, _ runtimes.Memory) (runtimes.Reader, error) {
		tries = append(tries, now.Sub(time.Unix(0, 0)))
		e.Hotspot.High = 1
		if result != nil {
			return nil, result
		}
		return noPlaces{}, nil
	}}
	open := func() bpf.RuntimeProcess {
		entry := bpf.RuntimeProcess{Image: 7, Kinds: 1 << bpf.RuntimeHotSpot}
		if !tracker.open(readerOf{1, bpf.RuntimeHotSpot}, build, &entry, 0) {
			t.Fatal("a runtime that may be ready later is given up")
		}
		return entry
	}
	for ; now.Before(time.Unix(20, 0)); now = now.Add(10 * time.Millisecond) {
		if open().Hotspot.High != 0 || tracker.Reader(1, bpf.RuntimeHotSpot, math.MaxUint64) != nil {
			t.Fatal("a reader of a runtime that is not ready")
		}
	}
	const ms = time.Millisecond
	if want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 12700 * ms, 19100 * ms}; !slices.Equal(tries, want) {
		t.Errorf("tries at %v, want %v", tries, want)
	}
	if notes := tracker.Notes(); len(notes) != 0 {
		t.Errorf("got notes %q of a runtime that has not started, want none", notes)
	}
	result = nil
	now = now.Add(time.Minute)
	for range 2 {
		if open().Hotspot.High != 1 || tracker.Reader(1, bpf.RuntimeHotSpot, math.MaxUint64) == nil {
			t.Error("no reader of a runtime that is ready")
		}
	}
	if len(tries) != 10 {
		t.Errorf("opened %d times, want 10", len(tries))
	}
}

// The summary names runtimes that cannot be read.
func TestTrackerNamesFailures(t *testing.T) {
	for _, tc := range []struct {
		err   error
		opens int
		kept  bool // for a later try
		want  string
	}{
		{runtimes.UnknownError("java 99: not supported yet"), 1, false, "java 99: not supported yet"},
		{fs.ErrPermission, 1, false, "java: no permission to read the memory of its processes, functions are not shown"},
		{io.ErrUnexpectedEOF, maxTries - 1, true, ""},
		{io.ErrUnexpectedEOF, maxTries, true, "java: unexpected data in the memory of a process, functions are not shown"},
	} {
		tracker := NewTracker(nil)
		now := time.Unix(0, 0)
		tracker.now = func() time.Time { now = now.Add(time.Minute); return now }
		build := &runtimes.Build{Open: func(*bpf.RuntimeProcess, uint64, runtimes.Memory) (runtimes.Reader, error) { return nil, tc.err }}
		for range tc.opens {
			entry := bpf.RuntimeProcess{Image: 7, Kinds: 1 << bpf.RuntimeHotSpot}
			if got := tracker.open(readerOf{1, bpf.RuntimeHotSpot}, build, &entry, 0); got != tc.kept {
				t.Errorf("%v: open returned %t, want %t", tc.err, got, tc.kept)
			}
		}
		if got := strings.Join(tracker.Notes(), "\n"); got != tc.want {
			t.Errorf("%v, %d times: got notes %q, want %q", tc.err, tc.opens, got, tc.want)
		}
	}
}

// Programs that claim many different versions do not fill the summary.
func TestTrackerUnknown(t *testing.T) {
	tracker := NewTracker(nil)
	for range 2 {
		for i := range 1000 {
			tracker.noteUnknown(fmt.Sprint("python ", i))
		}
	}
	if n := len(tracker.Notes()); n != maxUnknown+1 {
		t.Errorf("got %d notes, want %d", n, maxUnknown+1)
	}
}

// labeling notes the entries of processes with labels.
type labeling struct {
	Processes
	images []uint64
	last   bpf.LabelProcess
}

func (l *labeling) PutLabels(_ int, p bpf.LabelProcess) error {
	l.images, l.last = append(l.images, p.Image), p
	return nil
}

// The entry of a process with contexts of threads changes with what it maps. Labels of Go take
// precedence, and then a program's own variable.
func TestTrackerContext(t *testing.T) {
	variable := func(flags ...string) *threadctx.Variable {
		path := testenv.Compile(t, "variable", "gcc", append([]string{"-O2", "../threadctx/testdata/variable.c"}, flags...)...)
		f, err := elffile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		v, err := threadctx.Detect(f)
		if err != nil || v == nil {
			t.Fatalf("got %v, error %v", v, err)
		}
		return v
	}
	segments := []elffile.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_X, Offset: 0x1000, Addr: 0x2000, FileSize: 0x1000}}
	library := file{context: variable("-shared", "-fPIC", "-ftls-model=initial-exec"), segments: segments}
	program := file{context: variable("-DMAIN", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"), segments: segments}
	glibc, inGo := file{glibc: true}, file{labels: &bpf.LabelProcess{Kind: uint32(bpf.LabelsGoSlice)}}
	var l labeling
	tracker := NewTracker(&l)
	expected := 0 // processes with contexts of threads
	tracker.ReadLabels(func(pid int, image uint64) {
		if pid != 5 || image != 7 || len(l.images) != expected {
			t.Errorf("process %d, image %d is expected after %d changes, want process 5, image 7 after %d", pid, image, len(l.images), expected)
		}
		expected++
	})
	var mappings []process.Mapping
	for i, step := range []struct {
		file  file
		kind  bpf.LabelKind
		shift uint32
		puts  int
	}{
		{library, bpf.LabelsContextSlot, 3, 1},
		{glibc, bpf.LabelsContextSlot, 4, 2},
		{file{}, bpf.LabelsContextSlot, 4, 2},
		{program, bpf.LabelsContextOffset, 0, 3},
		{library, bpf.LabelsContextOffset, 0, 3},
		{inGo, bpf.LabelsGoSlice, 0, 4},
	} {
		f := new(process.File)
		tracker.files[weak.Make(f)] = step.file
		mappings = append(mappings, process.Mapping{Kind: process.KindFile, File: f, Start: 0x10000 * uint64(1+i), Offset: 0x1000})
		tracker.Mapped(5, 7, mappings)
		if l.last.Kind != uint32(step.kind) || l.last.ModuleShift != step.shift || l.last.Image != 7 || len(l.images) != step.puts {
			t.Errorf("step %d: got entry %+v after %d changes, want kind %d, shift %d, %d changes", i, l.last, len(l.images), step.kind, step.shift, step.puts)
		}
	}
	if expected != 3 {
		t.Errorf("a process with contexts of threads is expected %d times, want 3", expected)
	}
}

// The kernel side's entry of a process counts what the process has sent, so it is set only once,
// and again for the next program. Labels are read on request only.
func TestTrackerLabels(t *testing.T) {
	pprof.SetGoroutineLabels(t.Context()) // this program can set labels
	pid := os.Getpid()
	mappings := process.NewTable(process.Options{}).Mappings(pid)
	for _, read := range []bool{false, true} {
		var l labeling
		tracker, want := NewTracker(&l), []uint64(nil)
		if read {
			tracker.ReadLabels(nil)
			want = []uint64{7, 8, 8}
		}
		tracker.Mapped(pid, 7, mappings)
		tracker.Mapped(pid, 7, mappings)
		tracker.Mapped(pid, 8, mappings)
		tracker.Mapped(pid, 8, mappings)
		tracker.Forget(pid) // another process has the number
		tracker.Mapped(pid, 8, mappings)
		if !slices.Equal(l.images, want) {
			t.Errorf("labels are read: %t: got entries for images %v, want %v", read, l.images, want)
		}
	}
}
