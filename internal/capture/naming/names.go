// Package naming symbolizes samples. [Names] finds the names for a measurement while
// its processes run, and a [StackBuilder] adds stacks with these names to a profile.
// A [Resolver] adds names to a profile that was taken without them.
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
	"strings"
	"sync"
	"time"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/known"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/ksym"
	"fulgur/internal/symbols/symbolize"
)

// brokenStack stands for the missing callers of a broken chain of frame pointers.
const brokenStack = "[broken stack]"

// Names holds the functions of a store's frames.
type Names struct {
	store   *stacks.Store
	finder  *debugfile.Finder
	options symbolize.Options
	// found holds, for each frame of the store, its functions, innermost first;
	// none if it was not resolved.
	found [][]symbolize.Frame
	// shown holds the frames as in outputs: with link-time addresses for files.
	shown []shownFrame
	files []*fileID // by code of the store; nil if the code is not in an ELF file
	// stripped holds, by code of the store, the file if it lacks symbols.
	stripped []*stripped
	// problems holds errors by code, nil on success.
	problems []error
	// Later leaves the code of files without names. Tools can find them later by
	// build IDs and addresses.
	Later bool
	// kernelIDs holds the build IDs of kernel modules by name, the kernel's
	// under "".
	kernelIDs map[string]string

	// Cache holds names from earlier profiles; nil for a single profile.
	Cache *SymbolCache
	// Ahead, if not nil, is closed when sampling ends. Until then, one goroutine looks up names;
	// afterwards, it begins no more files. Files that it does not begin are not cached.
	Ahead <-chan struct{}
	// Snapshots holds copies of files from when the store was complete, for a profile
	// that is built while they grow; nil for a profile that is built afterwards.
	Snapshots *Snapshots

	dumps map[*process.JITDumps]process.JITTables // of the store's codes

	ctx  context.Context // of Symbolize; see lookups
	mu   sync.Mutex
	busy []stacks.CodeID // codes in progress, the oldest first
}

// fileID identifies an ELF file.
type fileID struct {
	elffile.IDs
	hash string // see [elffile.File.Hash]
	base uint64 // lowest address
}

func identify(e *symbolize.ELF) *fileID {
	return &fileID{e.File().IDs(), e.File().Hash(), e.File().Base()}
}

// shownFrame holds the properties of a [profile.Frame] that its names share.
type shownFrame struct {
	address  uint64
	isReturn bool
}

// New returns Names for store, without any names yet. finder finds debug files.
func New(store *stacks.Store, finder *debugfile.Finder, o symbolize.Options) *Names {
	return &Names{
		store:     store,
		finder:    finder,
		options:   o,
		stripped:  make([]*stripped, len(store.Codes)),
		kernelIDs: map[string]string{},
		found:     make([][]symbolize.Frame, len(store.Frames)),
		shown:     make([]shownFrame, len(store.Frames)),
		files:     make([]*fileID, len(store.Codes)),
		problems:  make([]error, len(store.Codes)),
	}
}

// errSampled means that sampling ended before a code was looked up.
var errSampled = errors.New("sampling has ended")

// Symbolize names every frame of the store, files in parallel. It stops when ctx
// ends; the remaining frames stay without names.
func (n *Names) Symbolize(ctx context.Context) {
	n.ctx = ctx
	n.readDumps()
	byCode := make([][]stacks.FrameID, len(n.store.Codes))
	for i, f := range n.store.Frames {
		n.shown[i] = shownFrame{f.Address, f.Return}
		if !n.Cache.recall(ctx, n, stacks.FrameID(i)) {
			byCode[f.Code] = append(byCode[f.Code], stacks.FrameID(i))
		}
	}
	goroutines := runtime.GOMAXPROCS(0)
	if n.Ahead != nil {
		goroutines = 1
	}
	work := make(chan stacks.CodeID)
	var workers sync.WaitGroup
	for range goroutines {
		workers.Go(func() {
			for code := range work {
				if n.sampled() {
					n.problems[code] = errSampled
					continue
				}
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
}

// sampled reports whether sampling has ended; see Ahead.
func (n *Names) sampled() bool {
	select {
	case <-n.Ahead:
		return true
	default:
		return false
	}
}

// left reports whether a frame has no name because it was not looked up.
func (n *Names) left(f stacks.FrameID) bool {
	return n.Later && n.store.Codes[n.store.Frames[f].Code].Kind == stacks.CodeFile
}

// Reading describes the code that has been in progress longest, "" if there is none.
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

// begin and end mark the time during which a code is in progress.
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

// largestFirst returns the codes that have frames, sorted by descending number of
// frames, so that the last one is quick.
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

// resolve names the frames of one code. The error wraps ctx's if it ended before the
// end.
func (n *Names) resolve(ctx context.Context, id stacks.CodeID, frames []stacks.FrameID) error {
	switch code := n.store.Codes[id]; code.Kind {
	case stacks.CodeBroken, stacks.CodeUnseen, stacks.CodeNamed:
		name := brokenStack
		switch code.Kind {
		case stacks.CodeUnseen:
			name = code.End.Marker()
		case stacks.CodeNamed:
			name = code.Name
		}
		for _, id := range frames {
			n.found[id] = []symbolize.Frame{{Name: name, SystemName: name}}
		}
		return nil
	case stacks.CodeUnknown:
		return fmt.Errorf("no executable mapping of process %d was known at these addresses", code.PID)
	case stacks.CodeRuntime:
		n.nameFunction(code.Function, frames)
		return nil
	}
	n.begin(id)
	defer n.end(id)
	if err := ctx.Err(); err != nil {
		return errors.Join(n.placeInFile(id, frames), err)
	}
	return errors.Join(n.read(ctx, id, frames), ctx.Err())
}

// nameFunction names the frames of a function of a language runtime, whose addresses are
// lines. It has no name if that did not arrive.
func (n *Names) nameFunction(f *runtimes.Code, frames []stacks.FrameID) {
	if f.Name == "" {
		return
	}
	for _, id := range frames {
		named := symbolize.Frame{Name: f.Name, SystemName: f.Name}
		if !n.options.NoInlines {
			named.File, named.StartLine, named.Line = f.File, f.FirstLine, int(n.store.Frames[id].Address)
		}
		n.found[id] = []symbolize.Frame{named}
		n.shown[id] = shownFrame{}
	}
}

// read names the frames of a code by reading its symbols.
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
		return n.lookUpJIT(code, frames)
	case stacks.CodeFile:
		return n.readFile(ctx, id, frames)
	}
	return nil
}

// readFile names the frames of a mapped file.
func (n *Names) readFile(ctx context.Context, id stacks.CodeID, frames []stacks.FrameID) error {
	if n.Later {
		return n.placeInFile(id, frames)
	}
	file := n.store.Codes[id].File
	if elf, lacks := n.Cache.table(file); elf != nil {
		n.stripped[id] = lacks
		return n.lookUpELF(id, elf, frames)
	}
	elf, err := n.openELF(file)
	if err != nil {
		return err
	}
	root := file.Root()
	began := time.Now()
	elf.Search(ctx, n.finder, root, file.Path)
	err = n.lookUpELF(id, elf, frames)
	if slog.Default().Enabled(ctx, slog.LevelDebug) { // the reasons need the debug information, which is expensive to open
		slog.Debug("symbols", "file", file.Path, "root", root, "buildID", elf.BuildID(), "symbols", elf.HasSymbols(),
			"addresses", len(frames), "took", time.Since(began), "search", errors.Join(elf.SearchProblems()...), "error", err)
	}
	if !elf.HasSymbols() {
		n.stripped[id] = &stripped{
			Stripped: debugfile.Stripped{Root: root, Path: file.Path, BuildID: elf.BuildID()},
			problems: elf.SearchProblems(),
		}
	}
	return errors.Join(err, n.Cache.keep(file, elf, n.stripped[id]))
}

// resolveKernel names frames of the kernel, with files and lines if its debug
// information is installed.
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

// openKernel returns the symbols of the kernel: a BPF program that looks up single
// addresses, or else all symbols in /proc/kallsyms.
func (n *Names) openKernel() (symbolize.Table, error) {
	if n.Cache != nil && n.Cache.kernel != nil {
		return n.Cache.kernel, nil
	}
	if asking, err := ksym.Open(n.options); err == nil {
		return asking, nil
	}
	kernel, err := symbolize.OpenKernel(symbolize.Kallsyms, n.options)
	if err != nil {
		return nil, err // not a nil table in an interface
	}
	return kernel, nil
}

// debugKernel adds debug information to names, if possible.
func (n *Names) debugKernel(ctx context.Context, names symbolize.Table) symbolize.Table {
	return symbolize.NewDebugKernel(ctx, names, n.finder, symbolize.Kallsyms, n.options)
}

// lookUpELF looks up frames in e, the ELF file of code id.
func (n *Names) lookUpELF(id stacks.CodeID, e *symbolize.ELF, frames []stacks.FrameID) error {
	n.files[id] = identify(e)
	return n.lookUp(e, frames, func(f stacks.Frame) (call uint64, shown shownFrame, ok bool) { return inELF(e, f) })
}

// openELF opens a mapped file, to name its code.
func (n *Names) openELF(file *process.File) (*symbolize.ELF, error) {
	r, size, err := file.ReaderAt()
	if err != nil {
		return nil, err
	}
	return symbolize.OpenELF(r, size, file.Path, n.options)
}

// placeInFile records the file of code id, if it is one, and the addresses of frames in it. Without
// them, frames that are named later would have offsets in the file instead of addresses.
func (n *Names) placeInFile(id stacks.CodeID, frames []stacks.FrameID) error {
	file := n.store.Codes[id].File
	if file == nil {
		return nil
	}
	if elf, lacks := n.Cache.table(file); elf != nil {
		n.stripped[id] = lacks
		n.placeInELF(id, elf, frames)
		return nil
	}
	elf, err := n.openELF(file)
	if err != nil {
		return err
	}
	n.placeInELF(id, elf, frames)
	return elf.Close()
}

// placeInELF records the file of code id, and the addresses of frames in it.
func (n *Names) placeInELF(id stacks.CodeID, e *symbolize.ELF, frames []stacks.FrameID) {
	n.files[id] = identify(e)
	for _, frame := range frames {
		if _, shown, ok := inELF(e, n.store.Frames[frame]); ok {
			n.shown[frame] = shown
		}
	}
}

// inELF returns a frame's link-time addresses.
func inELF(e *symbolize.ELF, f stacks.Frame) (call uint64, shown shownFrame, ok bool) {
	f.Return = f.Return && !e.SignalReturn(f.Address) // a signal return trampoline has no call
	call, ok = e.Address(f.Call())
	return call, shownFrame{call + (f.Address - f.Call()), f.Return}, ok
}

// running returns a frame's run-time addresses.
func running(f stacks.Frame) (call uint64, shown shownFrame, ok bool) {
	return f.Call(), shownFrame{f.Address, f.Return}, true
}

// lookUp looks up all frames in t at once. place returns the address of a frame's
// call in t, and the frame as in outputs.
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

// trampoline is the prefix of names of the functions that CPython makes for perf (-X perf),
// one for each of its functions.
const trampoline = "py::"

// isTrampoline reports whether a frame stands for a function that has a frame itself.
func (n *Names) isTrampoline(code stacks.Code, found []symbolize.Frame) bool {
	return code.Kind == stacks.CodeJIT && len(found) == 1 && strings.HasPrefix(found[0].Name, trampoline) &&
		n.store.Interpreted[code.PID]
}

// place adds a frame to the profile and returns the profile's frames, outermost
// function first; nothing if the frame is left out.
func (n *Names) place(b *profile.Builder, id stacks.FrameID) []profile.FrameID {
	f := n.store.Frames[id]
	code, found := n.store.Codes[f.Code], n.found[id]
	if n.isTrampoline(code, found) {
		return nil
	}
	frame := profile.Frame{Address: n.shown[id].address, Return: n.shown[id].isReturn, Kind: frameKind(code.Kind)}
	if frame.Kind != profile.KindMarker {
		frame.Mapping = b.Mapping(n.mapping(f.Code, found))
	}
	return addFrames(b, frame, found)
}

func frameKind(k stacks.CodeKind) profile.Kind {
	switch k {
	case stacks.CodeKernel, stacks.CodeNamed:
		return profile.KindKernel
	case stacks.CodeJIT, stacks.CodeRuntime:
		return profile.KindJIT
	case stacks.CodeBroken, stacks.CodeUnseen:
		return profile.KindMarker
	}
	return profile.KindUser
}

// mapping describes the code that holds a frame.
func (n *Names) mapping(id stacks.CodeID, found []symbolize.Frame) profile.Mapping {
	code, at := n.store.Codes[id], n.store.Ranges[id]
	m := profile.Mapping{Start: at.Start, Limit: at.Limit, Offset: at.Offset}
	if file := n.files[id]; file != nil {
		m.BuildID, m.GoBuildID, m.Hash, m.Base = file.GNU, file.Go, file.hash, file.base
	}
	switch code.Kind {
	case stacks.CodeNamed:
		m.Path = profile.KernelPath
	case stacks.CodeKernel:
		m.Path = profile.KernelPath
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
		m = profile.Mapping{Path: profile.JITPath}
	case stacks.CodeRuntime:
		m = profile.Mapping{Path: "[" + known.Name(code.Function.Kind) + "]"}
	default:
		m = profile.Mapping{Path: "[unknown]"}
	}
	return m
}

// kernelBuildID returns the build ID of a kernel module, or of the kernel if module
// is "". It returns "" if there is none, as for BPF programs.
func (n *Names) kernelBuildID(module string) string {
	id, known := n.kernelIDs[module]
	if !known {
		id, _ = n.finder.KernelBuildID(module) // empty on error
		n.kernelIDs[module] = id
	}
	return id
}

// Reports says whether [Names.Warnings] should include err, a problem with a file
// that also has another consequence.
func (n *Names) Reports(err error) bool {
	return errors.Is(err, safeopen.ErrNoAnswer) &&
		slices.ContainsFunc(n.problems, func(err error) bool { return errors.Is(err, safeopen.ErrNoAnswer) })
}

// Warnings returns one line per problem. It omits code without a file. All
// unreadable files share a line, because for users without privileges most files are
// unreadable. So do all names that are missing because of an interrupt.
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

// withoutCanceled returns err without the errors of a canceled context.
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
