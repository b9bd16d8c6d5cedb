// Package naming gives names to what was sampled. [Names] are those of a measurement,
// looked for while its processes run, and a [StackBuilder] puts its stacks with them into a
// profile; a [Resolver] names the frames of a profile that was taken without.
package naming

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/files/answer"
	"fulgur/internal/message/plain"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/ksym"
	"fulgur/internal/symbols/symbolize"
)

// brokenStack stands for the callers that a broken chain of frame pointers does
// not lead to.
const brokenStack = "[broken stack]"

// unseenStack stands for the user stack of a thread that slept before the
// measurement, where the kernel cannot read it.
const unseenStack = "[before measurement]"

// kallsyms has the symbols of the running kernel.
const kallsyms = "/proc/kallsyms"

// Names are the functions of a store's frames.
type Names struct {
	store   *stacks.Store
	finder  *debugfile.Finder
	options symbolize.Options
	// found has for each frame of the store its functions, innermost first;
	// none if it could not be resolved.
	found [][]symbolize.Frame
	// shown are the frames as outputs show them: with link-time addresses for
	// files.
	shown    []shownFrame
	buildIDs []string // for each code of the store
	bases    []uint64 // likewise, the lowest addresses of ELF files
	// stripped has for each code of the store the file if it lacks symbols.
	stripped []*stripped
	// problems are errors by code, nil where all went well.
	problems []error
	// Unresolved is how many functions have no name, though one was looked for, and
	// addresses where no function is known.
	Unresolved uint64
	// Later says that code of files is left without names, which others find by
	// build IDs and addresses.
	Later bool
	// kernelIDs are the build IDs of kernel modules by name, the kernel's own
	// by none.
	kernelIDs map[string]string

	// Cache has names that need not be looked for; nil for a profile that is the
	// only one.
	Cache *SymbolCache
	// Snapshots are perf maps as they were when the store was complete, for a
	// profile that is made while they grow; nil for one that is made afterwards.
	Snapshots map[*process.PerfMap]*process.PerfMap

	mu   sync.Mutex
	busy []stacks.CodeID // what is being read, the longest one first
}

// shownFrame is what [profile.Frame] has of the same names.
type shownFrame struct {
	address  uint64
	isReturn bool
}

// New returns the names of store's frames, none of which is known yet, and
// will be with the debug files that finder finds.
func New(store *stacks.Store, finder *debugfile.Finder, o symbolize.Options) *Names {
	return &Names{
		store:     store,
		finder:    finder,
		options:   o,
		stripped:  make([]*stripped, len(store.Codes)),
		kernelIDs: map[string]string{},
		found:     make([][]symbolize.Frame, len(store.Frames)),
		shown:     make([]shownFrame, len(store.Frames)),
		buildIDs:  make([]string, len(store.Codes)),
		bases:     make([]uint64, len(store.Codes)),
		problems:  make([]error, len(store.Codes)),
	}
}

// Symbolize names every frame of the store, file by file and files in parallel.
// The end of ctx ends it; frames that have no name by then keep none.
func (n *Names) Symbolize(ctx context.Context) {
	byCode := make([][]stacks.FrameID, len(n.store.Codes))
	for i, f := range n.store.Frames {
		n.shown[i] = shownFrame{f.Address, f.Return}
		if !n.Cache.recall(n, stacks.FrameID(i)) {
			byCode[f.Code] = append(byCode[f.Code], stacks.FrameID(i))
		}
	}
	work := make(chan stacks.CodeID)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for code := range work {
				n.problems[code] = n.resolve(ctx, code, byCode[code])
			}
		})
	}
	for _, code := range largestFirst(byCode) {
		work <- code
	}
	close(work)
	workers.Wait()
	for _, frames := range byCode {
		n.Cache.remember(n, frames)
	}
	n.countUnresolved()
}

// countUnresolved sets Unresolved.
func (n *Names) countUnresolved() {
	type place struct {
		code     stacks.CodeID
		function string // of one without a symbol
		address  uint64 // where no function is known
	}
	places := map[place]bool{}
	for i, f := range n.store.Frames {
		switch found := n.found[i]; {
		case !n.lacks(stacks.FrameID(i)):
		case len(found) > 0:
			places[place{code: f.Code, function: found[len(found)-1].Name}] = true
		default:
			places[place{code: f.Code, address: f.Address}] = true
		}
	}
	n.Unresolved = uint64(len(places))
}

// lacks reports whether a frame has no name, though one was looked for.
func (n *Names) lacks(f stacks.FrameID) bool { return !named(n.found[f]) && !n.left(f) }

// left reports whether a frame is without a name because none was looked for.
func (n *Names) left(f stacks.FrameID) bool {
	return n.Later && n.store.Codes[n.store.Frames[f].Code].Kind == stacks.CodeFile
}

// Reading describes what is being read since the longest time, or is empty.
func (n *Names) Reading() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.busy) == 0 {
		return ""
	}
	switch code := n.store.Codes[n.busy[0]]; code.Kind {
	case stacks.CodeFile:
		return code.File.Path
	case stacks.CodeKernel:
		return "the kernel"
	case stacks.CodeJIT:
		return "code compiled at run time"
	}
	return "the vdso"
}

// begin and end enclose the reading of a code.
func (n *Names) begin(id stacks.CodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy = append(n.busy, id)
}

func (n *Names) end(id stacks.CodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy = slices.DeleteFunc(n.busy, func(b stacks.CodeID) bool { return b == id })
}

// largestFirst returns the codes that have frames, those with most of them
// first: the last one to be named should not be one that takes long.
func largestFirst(byCode [][]stacks.FrameID) []stacks.CodeID {
	var codes []stacks.CodeID
	for code, frames := range byCode {
		if len(frames) > 0 {
			codes = append(codes, stacks.CodeID(code))
		}
	}
	slices.SortStableFunc(codes, func(a, b stacks.CodeID) int { return cmp.Compare(len(byCode[b]), len(byCode[a])) })
	return codes
}

// resolve names the frames of one code. The error wraps that of ctx if it ended
// before all was read.
func (n *Names) resolve(ctx context.Context, id stacks.CodeID, frames []stacks.FrameID) error {
	switch code := n.store.Codes[id]; code.Kind {
	case stacks.CodeBroken, stacks.CodeUnseen:
		name := brokenStack
		if code.Kind == stacks.CodeUnseen {
			name = unseenStack
		}
		for _, id := range frames {
			n.found[id] = []symbolize.Frame{{Name: name, SystemName: name}}
		}
		return nil
	case stacks.CodeUnknown:
		return fmt.Errorf("no executable mapping of process %d was known at these addresses", code.PID)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n.begin(id)
	defer n.end(id)
	return errors.Join(n.read(ctx, id, frames), ctx.Err())
}

// read names the frames of a code that has something to be read.
func (n *Names) read(ctx context.Context, id stacks.CodeID, frames []stacks.FrameID) error {
	code := n.store.Codes[id]
	switch code.Kind {
	case stacks.CodeKernel:
		return n.resolveKernel(ctx, frames)
	case stacks.CodeVDSO:
		vdso, err := symbolize.OpenVDSO(n.options)
		if err != nil {
			return err
		}
		return n.lookUpELF(id, vdso, frames)
	case stacks.CodeJIT:
		return n.lookUpJIT(n.perfMap(code.PerfMap), frames)
	case stacks.CodeFile:
		return n.readFile(ctx, id, frames)
	}
	return nil
}

// readFile names the frames of a mapped file.
func (n *Names) readFile(ctx context.Context, id stacks.CodeID, frames []stacks.FrameID) error {
	file := n.store.Codes[id].File
	if elf, lacks := n.Cache.table(file); elf != nil {
		n.stripped[id] = lacks
		return n.lookUpELF(id, elf, frames)
	}
	r, size, err := file.ReaderAt()
	if err != nil {
		return err
	}
	elf, err := symbolize.OpenELF(r, size, file.Path, n.options)
	if err != nil {
		return err
	}
	if n.Later {
		n.placeInELF(id, elf, frames)
		return elf.Close()
	}
	root := file.Root()
	began := time.Now()
	elf.Search(ctx, n.finder, root, file.Path)
	err = n.lookUpELF(id, elf, frames)
	slog.Debug("symbols", "file", file.Path, "root", root, "buildID", elf.BuildID(), "symbols", elf.HasSymbols(),
		"addresses", len(frames), "took", time.Since(began), "search", errors.Join(elf.SearchProblems()...), "error", err)
	if !elf.HasSymbols() {
		n.stripped[id] = &stripped{
			Stripped: debugfile.Stripped{Root: root, Path: file.Path, BuildID: elf.BuildID()},
			problems: elf.SearchProblems(),
		}
	}
	return errors.Join(err, n.Cache.keep(file, elf, n.stripped[id]))
}

// resolveKernel names frames of the kernel, and describes them from its debug
// information where that is installed.
func (n *Names) resolveKernel(ctx context.Context, frames []stacks.FrameID) error {
	kernel, err := n.openKernel()
	if err != nil {
		return err
	}
	err = n.lookUp(n.debugKernel(ctx, kernel), frames, running)
	if n.Cache != nil {
		n.Cache.kernel = kernel
	} else if c, ok := kernel.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// openKernel returns what names the kernel's functions: the kernel that is asked
// for these alone, or else all of its symbols.
func (n *Names) openKernel() (symbolize.Table, error) {
	if n.Cache != nil && n.Cache.kernel != nil {
		return n.Cache.kernel, nil
	}
	if asking, err := ksym.Open(n.options); err == nil {
		return asking, nil
	}
	kernel, err := symbolize.OpenKernel(kallsyms, n.options)
	if err != nil {
		return nil, err // not a nil table in an interface
	}
	return kernel, nil
}

// debugKernel adds to names what debug information knows.
func (n *Names) debugKernel(ctx context.Context, names symbolize.Table) symbolize.Table {
	return symbolize.NewDebugKernel(ctx, names, n.finder, kallsyms, n.options)
}

// PerfMapsOf returns the perf maps of a store as they are, so that names can be
// looked for while they grow.
func PerfMapsOf(store *stacks.Store) map[*process.PerfMap]*process.PerfMap {
	taken := map[*process.PerfMap]*process.PerfMap{}
	for _, code := range store.Codes {
		if m := code.PerfMap; m != nil {
			taken[m] = m.Snapshot()
		}
	}
	return taken
}

// perfMap returns what stands for m.
func (n *Names) perfMap(m *process.PerfMap) *process.PerfMap {
	if n.Snapshots == nil {
		return m
	}
	return n.Snapshots[m]
}

// lookUpJIT asks a JIT's perf map, and for frames that it does not know, the
// one that was written after it.
func (n *Names) lookUpJIT(m *process.PerfMap, frames []stacks.FrameID) error {
	var errs []error
	for ; m != nil && len(frames) > 0; m = m.Next() {
		r, size, err := m.ReaderAt()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, process.ErrFileGone):
			err = nil // few programs with a JIT write one
		case err == nil:
			err = errors.Join(n.lookUp(symbolize.OpenPerfMap(r, size), frames, running), m.Incomplete())
			if err != nil {
				err = fmt.Errorf("process %d: %w", m.PID(), err)
			}
		}
		errs = append(errs, err)
		frames = slices.DeleteFunc(frames, func(id stacks.FrameID) bool { return len(n.found[id]) > 0 })
	}
	return errors.Join(errs...)
}

// lookUpELF asks an ELF file, which is what code id is.
func (n *Names) lookUpELF(id stacks.CodeID, e *symbolize.ELF, frames []stacks.FrameID) error {
	n.buildIDs[id], n.bases[id] = e.BuildID(), e.File().Base()
	return n.lookUp(e, frames, func(f stacks.Frame) (call uint64, shown shownFrame, ok bool) { return inELF(e, f) })
}

// placeInELF says which file code id is, and where frames are in it.
func (n *Names) placeInELF(id stacks.CodeID, e *symbolize.ELF, frames []stacks.FrameID) {
	n.buildIDs[id], n.bases[id] = e.BuildID(), e.File().Base()
	for _, frame := range frames {
		if _, shown, ok := inELF(e, n.store.Frames[frame]); ok {
			n.shown[frame] = shown
		}
	}
}

// inELF places a frame by the addresses that a file was linked for.
func inELF(e *symbolize.ELF, f stacks.Frame) (call uint64, shown shownFrame, ok bool) {
	f.Return = f.Return && !e.SignalReturn(f.Address) // nothing called it
	call, ok = e.Address(f.Call())
	return call, shownFrame{call + (f.Address - f.Call()), f.Return}, ok
}

// running places a frame by its running address.
func running(f stacks.Frame) (call uint64, shown shownFrame, ok bool) {
	return f.Call(), shownFrame{f.Address, f.Return}, true
}

// lookUp asks t for all frames at once. place returns the address of a frame's call
// by which t knows it, and the frame as outputs show it.
func (n *Names) lookUp(t symbolize.Table, frames []stacks.FrameID, place func(stacks.Frame) (call uint64, shown shownFrame, ok bool)) error {
	queries := make([]query[stacks.FrameID], 0, len(frames))
	for _, id := range frames {
		call, shown, ok := place(n.store.Frames[id])
		if !ok {
			continue
		}
		n.shown[id] = shown
		queries = append(queries, query[stacks.FrameID]{id, call})
	}
	return lookUp(t, queries, func(q query[stacks.FrameID], functions []symbolize.Frame) { n.found[q.frame] = functions })
}

// place adds a frame to the profile and returns what it became, outermost
// function first.
func (n *Names) place(b *profile.Builder, id stacks.FrameID) []profile.FrameID {
	f := n.store.Frames[id]
	code, found := n.store.Codes[f.Code], n.found[id]
	frame := profile.Frame{Address: n.shown[id].address, Return: n.shown[id].isReturn, Kind: frameKind(code.Kind)}
	if frame.Kind != profile.KindMarker {
		frame.Mapping = b.Mapping(n.mapping(f.Code, found))
	}
	return addFrames(b, frame, found)
}

func frameKind(k stacks.CodeKind) profile.Kind {
	switch k {
	case stacks.CodeKernel:
		return profile.KindKernel
	case stacks.CodeJIT:
		return profile.KindJIT
	case stacks.CodeBroken, stacks.CodeUnseen:
		return profile.KindMarker
	}
	return profile.KindUser
}

// mapping describes the code that holds a frame.
func (n *Names) mapping(id stacks.CodeID, found []symbolize.Frame) profile.Mapping {
	code, at := n.store.Codes[id], n.store.Ranges[id]
	m := profile.Mapping{BuildID: n.buildIDs[id], Start: at.Start, Limit: at.Limit, Offset: at.Offset, Base: n.bases[id]}
	switch code.Kind {
	case stacks.CodeKernel:
		m.Path = kernelMapping
		module := ""
		if len(found) > 0 && found[0].Module != "" {
			module = found[0].Module
			m.Path = "[" + module + "]"
		}
		m.BuildID = n.kernelBuildID(module)
	case stacks.CodeVDSO:
		m.Path = "[vdso]"
	case stacks.CodeFile:
		m.Path = code.File.Path
	case stacks.CodeJIT:
		m = profile.Mapping{Path: "[jit]"}
	default:
		m = profile.Mapping{Path: "[unknown]"}
	}
	return m
}

// kernelBuildID returns the build ID of a kernel module, or of the kernel if
// module is empty; "" for what has none, as BPF programs.
func (n *Names) kernelBuildID(module string) string {
	id, known := n.kernelIDs[module]
	if !known {
		id, _ = n.finder.KernelBuildID(module) // none is all that can be said
		n.kernelIDs[module] = id
	}
	return id
}

// TellOf reports whether the warnings tell of a problem with a file that has
// another consequence, too.
func (n *Names) TellOf(err error) bool {
	return errors.Is(err, answer.ErrNone) &&
		slices.ContainsFunc(n.problems, func(err error) bool { return errors.Is(err, answer.ErrNone) })
}

// Warnings are the problems worth a line each: not those of code that has no
// file to complain about. That names are missing because the search for them
// was interrupted is one, and so are all files that may not be read, which for a
// user without rights are most.
func (n *Names) Warnings() []string {
	isNamed, unnamed := make([]bool, len(n.store.Codes)), make([]uint64, len(n.store.Codes))
	for i, found := range n.found {
		if code := n.store.Frames[i].Code; named(found) {
			isNamed[code] = true
		} else {
			unnamed[code]++
		}
	}
	var lines, denied []string
	var cut, addresses uint64
	for id, err := range n.problems {
		if errors.Is(err, context.Canceled) {
			cut++
			addresses += unnamed[id]
			err = withoutCanceled(err)
		}
		kind := n.store.Codes[id].Kind
		if err == nil || kind == stacks.CodeUnknown {
			continue
		}
		heading := "no names"
		if isNamed[id] {
			heading = "incomplete names"
		}
		line := heading + ": " + plain.Error(err)
		if errors.Is(err, fs.ErrPermission) {
			denied = append(denied, line)
		} else if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(denied) > 1 {
		denied = []string{denied[0] + "; the same for other files"}
	}
	lines = append(lines, denied...)
	if cut > 0 {
		lines = append(lines, fmt.Sprintf("interrupted: incomplete names in %s; %d addresses shown as module+offset",
			plain.Count(cut, "module"), addresses))
	}
	return lines
}

// withoutCanceled returns err without what says that a context ended.
func withoutCanceled(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var rest []error
	for _, err := range joined.Unwrap() {
		rest = append(rest, withoutCanceled(err))
	}
	return errors.Join(rest...)
}
