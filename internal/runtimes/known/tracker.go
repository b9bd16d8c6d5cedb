package known

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"
	"weak"

	"fulgur/internal/bpf"
	"fulgur/internal/files/budget"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/golabels"
	"fulgur/internal/runtimes/threadctx"
	"fulgur/internal/symbols/elffile"
)

// Tracker keeps the kernel side's map of processes with a runtime. A nil Tracker does nothing.
// It is not safe for concurrent use.
type Tracker struct {
	processes Processes
	// files holds the searched files, by weak pointers.
	files    map[weak.Pointer[process.File]]file
	readers  map[readerOf]reader
	programs map[programRuntime]programState
	kept     int // bytes that all readers cached, as of each one's last use
	reads    *budget.Time
	pruned   int // number of files after the last prune
	unknown  map[string]bool
	failure  error
	now      func() time.Time
	// labeled holds the kernel side's entries of the processes whose labels it reads, by PID. It
	// is nil if labels are not read.
	labeled map[int]bpf.LabelProcess
	// generators holds, by PID, the language whose runtime generates code, if a process has one
	// such runtime.
	generators map[int]string
	// omits holds what [Tracker.Omits] returns for processes with Mono.
	omits  map[int]func() bool
	expect func(pid int, image uint64) // see ReadLabels
}

const (
	// minPrune is the number of files below which prune does nothing.
	minPrune = 1024
	// maxUnknown limits the notes about unknown runtimes, because files may claim any
	// version.
	maxUnknown = 8
	// firstRetry is the time after which a runtime that has not started is read again. It
	// doubles with each retry, up to maxBackoff times.
	firstRetry = 100 * time.Millisecond
	maxBackoff = 6
	// maxTries is the number of failures after which the summary names the runtime.
	maxTries = 5
)

// maxKept limits the bytes that all readers cache.
const maxKept = 256 << 20

// readerOf is a runtime of a process.
type readerOf struct {
	pid  int
	kind runtimes.Kind
}

// reader is the reader of a runtime in a process image.
type reader struct {
	runtimes.Reader // nil if the runtime has not started yet
	image           uint64
	open            func() runtimes.Reader // returns a new reader with empty caches, or nil
	since           uint64                 // CLOCK_MONOTONIC in ns: the image has run at least since then
	kept            int                    // cached bytes as of its last use
	entry           bpf.RuntimeProcess
	memory          runtimes.Memory
	tries           int
	next            time.Time // when to try again
}

// file holds the result of searching a file.
type file struct {
	builds      map[runtimes.Kind]*runtimes.Build
	interpreter *interpreter        // nil if it has none
	labels      *bpf.LabelProcess   // nil if it has no labels
	context     *threadctx.Variable // nil if it has none
	glibc       bool
	segments    []elffile.Segment // with code; nil without runtimes and context
	image       *elfImage         // nil if not read or not an ELF file
	imaged      bool              // image was read
}

// Processes is the kernel side's map of processes with runtimes.
type Processes interface {
	// Put sets the runtimes of process pid.
	Put(pid int, runtime bpf.RuntimeProcess) error
	// PutProgram sets a runtime of the processes that run a program and that the kernel side
	// does not know yet. The tracker calls it for each process that has the runtime. If there are
	// too many programs, it forgets the one that was set the longest ago.
	PutProgram(key uint64, program bpf.RuntimeProgram) error
	// PutLabels sets how process pid keeps its labels. What the kernel side counts in the entry
	// of a process image stays.
	PutLabels(pid int, labels bpf.LabelProcess) error
}

// NewTracker returns a tracker that writes to processes.
func NewTracker(processes Processes) *Tracker {
	return &Tracker{
		processes:  processes,
		files:      map[weak.Pointer[process.File]]file{},
		readers:    map[readerOf]reader{},
		reads:      budget.New(maxReading, readingShare),
		programs:   map[programRuntime]programState{},
		unknown:    map[string]bool{},
		generators: map[int]string{},
		omits:      map[int]func() bool{},
		now:        time.Now,
	}
}

// mapped is a runtime in a file that a process maps.
type mapped struct {
	build *runtimes.Build
	file  *process.File
	bias  uint64
}

// Mapped adds process pid, which runs image and has the given executable mappings, to the
// kernel side's map if the mapped files have runtimes.
func (t *Tracker) Mapped(pid int, image uint64, mappings []process.Mapping) {
	if t == nil {
		return
	}
	for kind := range All {
		if r, ok := t.readers[readerOf{pid, kind}]; ok && r.image != image {
			t.Forget(pid)
		}
	}
	found := map[runtimes.Kind]mapped{}
	var labels *bpf.LabelProcess
	var context *threadctx.Variable
	var contextBias uint64
	generators := map[string]bool{}
	glibc, later := false, false
	for _, m := range mappings {
		if m.Kind != process.KindFile || m.File == nil {
			continue
		}
		f := t.file(m.File)
		glibc = glibc || f.glibc
		later = later || t.starts(m.File)
		for _, language := range f.generators() {
			generators[language] = true
		}
		labels = cmp.Or(labels, f.labels)
		if f.context != nil && (context == nil || f.context.InProgram()) {
			if at, ok := f.bias(m); ok {
				context, contextBias = f.context, at
			}
		}
		for kind, build := range f.builds {
			// A program may link a runtime and map another build of it, which it does not use.
			if at, ok := f.bias(m); ok && (found[kind].build == nil || found[kind].build.Unknown != "" && build.Unknown == "") {
				found[kind] = mapped{build, m.File, at}
			}
		}
	}
	delete(t.generators, pid)
	if generators[ofMono] {
		t.hasMono(pid)
	} else {
		delete(t.omits, pid)
	}
	if len(generators) == 1 {
		for language := range generators {
			t.generators[pid] = language
		}
	}
	switch {
	case labels != nil: // Go moves goroutines between threads
		entry := *labels
		entry.Image = image
		t.mapLabels(pid, entry)
	case context != nil:
		t.mapLabels(pid, context.Entry(image, contextBias, glibc))
	}
	entry := bpf.RuntimeProcess{Image: image}
	for kind, is := range found {
		if is.build.Unknown != "" {
			t.noteUnknown(is.build.Unknown)
			continue
		}
		placed := is.build.Entry
		placed.Image = image
		is.build.Place(&placed, is.bias, glibc)
		if is.build.Open != nil && !t.open(readerOf{pid, kind}, is.build, &placed, is.bias) {
			continue
		}
		slog.Debug("runtime", "pid", pid, "kind", Name(kind), "version", is.build.Version, "glibc", glibc)
		runtimes.Add(&entry, placed)
		t.addProgram(process.Files(mappings), kind, is, glibc)
	}
	if entry.Kinds != 0 || later && len(found) == 0 {
		t.failure = cmp.Or(t.failure, t.processes.Put(pid, entry))
	}
}

// ReadLabels makes t look for labels, too. Before the kernel side reads the contexts of threads of a
// process image, t calls expect, unless it is nil. ReadLabels has no effect on a nil Tracker.
func (t *Tracker) ReadLabels(expect func(pid int, image uint64)) {
	if t != nil {
		t.labeled, t.expect = map[int]bpf.LabelProcess{}, expect
	}
}

// mapLabels adds process pid to the kernel side's map, unless it has this entry already.
func (t *Tracker) mapLabels(pid int, entry bpf.LabelProcess) {
	if t.labeled[pid] == entry {
		return
	}
	slog.Debug("labels", "pid", pid, "kind", entry.Kind, "labels", entry.Labels, "threadOffset", entry.ThreadOffset, "slot", entry.Slot, "offset", int64(entry.Offset))
	if t.expect != nil && entry.Kind >= uint32(bpf.LabelsContextOffset) {
		t.expect(pid, entry.Image)
	}
	if err := t.processes.PutLabels(pid, entry); err != nil {
		t.failure = cmp.Or(t.failure, err)
		return
	}
	t.labeled[pid] = entry
}

// open completes the entry of a process with a runtime, and opens its reader. It reports false if
// the kernel side should never read the runtime's frames.
func (t *Tracker) open(of readerOf, found *runtimes.Build, entry *bpf.RuntimeProcess, bias uint64) bool {
	is := t.readers[of]
	if is.Reader != nil {
		*entry = is.entry
		return true
	}
	if is.memory == nil {
		// Each process has its own time limit, so that a slow one does not cost other
		// processes their names.
		memory := &limitedMemory{process.NewMemory(of.pid, safeopen.NewBudget()), t.reads}
		is = reader{image: entry.Image, memory: memory, since: monotonic.Now()}
		placed := *entry
		is.open = func() runtimes.Reader {
			again := placed
			r, err := found.Open(&again, bias, memory)
			if err != nil {
				return nil
			}
			return r
		}
	}
	now := t.now()
	if now.Before(is.next) {
		return true
	}
	is.next = now.Add(firstRetry << min(is.tries, maxBackoff))
	is.tries++
	complete := *entry // if Open fails, it may be incomplete
	var err error
	if is.Reader, err = found.Open(&complete, bias, is.memory); err == nil {
		*entry = complete
	}
	is.entry = *entry
	t.readers[of] = is
	var unknown runtimes.UnknownError
	switch {
	case err == nil:
		return true
	case errors.As(err, &unknown):
		t.noteUnknown(unknown.Error())
		return false
	case errors.Is(err, fs.ErrPermission):
		t.noteUnknown(fmt.Sprintf("%s: no permission to read the memory of its processes, functions are not shown", Name(of.kind)))
		return false
	case errors.Is(err, runtimes.ErrNotReady):
		return true
	}
	slog.Debug("runtime not read", "pid", of.pid, "kind", Name(of.kind), "error", err)
	if is.tries >= maxTries {
		t.noteUnknown(fmt.Sprintf("%s: unexpected data in the memory of a process, functions are not shown", Name(of.kind)))
	}
	return true // the runtime may be about to start
}

// Reader returns the reader of functions of a runtime in process pid at a time in ns
// (CLOCK_MONOTONIC). It returns nil if the process has none, or ran another program then: the kernel
// side does not read frames of a program before [Tracker.Mapped] was called for it.
func (t *Tracker) Reader(pid int, kind runtimes.Kind, time uint64) runtimes.Reader {
	of := readerOf{pid, kind}
	r, ok := t.readers[of]
	if !ok || r.Reader == nil || time < r.since {
		return nil
	}
	kept := r.Kept()
	t.kept += kept - r.kept
	r.kept = kept
	t.readers[of] = r
	for t.kept > maxKept && len(t.readers) > 0 {
		t.dropLargest()
	}
	return t.readers[of].Reader
}

// dropLargest replaces the reader with the largest caches.
func (t *Tracker) dropLargest() {
	var largest readerOf
	for of, r := range t.readers {
		if largest.pid == 0 || r.kept > t.readers[largest].kept {
			largest = of
		}
	}
	r := t.readers[largest]
	t.kept -= r.kept
	r.kept, r.Reader = 0, r.open()
	t.readers[largest] = r
}

// Forget removes the readers of a process that has ended.
func (t *Tracker) Forget(pid int) {
	if t == nil {
		return
	}
	for kind := range All {
		of := readerOf{pid, kind}
		t.kept -= t.readers[of].kept
		delete(t.readers, of)
	}
	delete(t.labeled, pid)
	delete(t.generators, pid)
	delete(t.omits, pid)
}

// bias returns the difference between running and link-time addresses in mapping m, and
// false if m maps none of the file's segments with code.
func (f *file) bias(m process.Mapping) (uint64, bool) {
	page := uint64(os.Getpagesize())
	for _, s := range f.segments {
		if m.Offset >= s.Offset&^(page-1) && m.Offset < s.Offset+s.FileSize {
			return m.Start - m.Offset - (s.Addr - s.Offset), true
		}
	}
	return 0, false
}

// file returns the result of searching f, from the cache if possible.
func (t *Tracker) file(f *process.File) file {
	key := weak.Make(f)
	is, ok := t.files[key]
	if ok {
		return is
	}
	t.prune()
	is, err := search(f, t.labeled != nil)
	if err != nil {
		slog.Debug("file not searched for runtimes", "path", f.Path, "error", err)
	}
	t.files[key] = is
	return is
}

// prune removes files that are gone if there are many more than after the last prune.
func (t *Tracker) prune() {
	if len(t.files) < 2*t.pruned+minPrune {
		return
	}
	maps.DeleteFunc(t.files, func(f weak.Pointer[process.File], _ file) bool { return f.Value() == nil })
	maps.DeleteFunc(t.programs, func(p programRuntime, _ programState) bool { return p.file.Value() == nil })
	t.pruned = len(t.files)
}

// noteUnknown records why the frames of a runtime cannot be read.
func (t *Tracker) noteUnknown(why string) {
	if len(t.unknown) >= maxUnknown && !t.unknown[why] {
		why = "other versions of language runtimes: not supported yet, their functions are not shown"
	}
	t.unknown[why] = true
}

// search searches f for runtimes, for glibc and, if asked to, for labels.
func search(f *process.File, labels bool) (is file, err error) {
	e, err := f.ELF()
	if err != nil {
		return is, err
	}
	if labels {
		if is.labels, err = golabels.Detect(e); err != nil {
			slog.Debug("labels not found", "path", f.Path, "error", err)
		}
		if is.context, err = threadctx.Detect(e); err != nil {
			slog.Debug("thread context not found", "path", f.Path, "error", err)
		}
	}
	_, is.glibc, err = e.DynamicSymbol("gnu_get_libc_version")
	if err != nil {
		return is, err
	}
	if is.interpreter, err = interpreterIn(e); err != nil {
		return is, err
	}
	is.builds = map[runtimes.Kind]*runtimes.Build{}
	for kind, runtime := range All {
		build, err := runtime.Detect(e)
		if err != nil {
			slog.Debug("runtime not found", "path", f.Path, "kind", Name(kind), "error", err)
		}
		if build != nil {
			is.builds[kind] = build
		}
	}
	if len(is.builds) > 0 || is.context != nil {
		is.segments = slices.DeleteFunc(slices.Clone(e.Segments()), func(s elffile.Segment) bool {
			return s.Type != elf.PT_LOAD || s.Flags&elf.PF_X == 0
		})
	}
	return is, err
}

// Has reports whether f has a runtime whose frames fulgur reads.
func (t *Tracker) Has(f *process.File) bool {
	if t == nil {
		return false
	}
	for _, build := range t.files[weak.Make(f)].builds {
		if build.Unknown == "" {
			return true
		}
	}
	return false
}

// Notes returns lines for the summary about runtimes whose frames fulgur cannot read.
func (t *Tracker) Notes() (lines []string) {
	if t == nil {
		return nil
	}
	for what := range t.unknown {
		lines = append(lines, what)
	}
	slices.Sort(lines)
	if t.failure != nil {
		lines = append(lines, t.failure.Error())
	}
	return lines
}
