package naming

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/process"
	"fulgur/internal/symbols/symbolize"
)

const (
	// maxKnown is the number of frame names per generation. The cache keeps two:
	// the names used since the last change of generations, and those used
	// before.
	maxKnown = 1 << 15
	// maxTables is the number of files that stay open, with their parsed symbols
	// and debug information.
	maxTables = 32
	// fewTables is the number of files that stay open if memory is scarce.
	fewTables = 4
)

// SymbolCache keeps the names of frames from earlier windows, and the symbol tables
// of their files: most frames of a window were also in the window before, and
// opening a file costs more than looking up one more frame in it. A nil cache is
// empty. Only one [Names] may use it at a time.
type SymbolCache struct {
	young, old map[knownFrame]knownNames

	mu     sync.Mutex // files are read in parallel
	tables map[*process.File]*knownTable
	kernel symbolize.Table // nil before first use
	round  uint64
	last   bool // see Last
}

// knownFrame identifies a frame across stores.
type knownFrame struct {
	code     stacks.Code
	address  uint64
	isReturn bool
	epoch    uint32
	// described is the size of the perf map and of jitdump files, for JIT code: later
	// entries may cover the same address.
	described int64
}

// knownNames is the cached result for a frame.
type knownNames struct {
	found []symbolize.Frame
	shown shownFrame
	file  *fileID   // see [Names]
	lacks *stripped // nil if the file has symbols
	// left means that the frame was not looked up, see [Names.Later].
	left bool
	// canceled is the context's error if an interrupt came before all names were found, else nil.
	canceled error
}

// knownTable is an open table.
type knownTable struct {
	elf   *symbolize.ELF
	lacks *stripped // nil if it has symbols
	round uint64    // round of the last use
}

// NewSymbolCache returns an empty cache. The caller must close it.
func NewSymbolCache() *SymbolCache {
	return &SymbolCache{
		young:  map[knownFrame]knownNames{},
		old:    map[knownFrame]knownNames{},
		tables: map[*process.File]*knownTable{},
	}
}

// Last declares that only one more [Names] will use the cache, so that it keeps nothing new.
func (k *SymbolCache) Last() {
	if k != nil {
		k.last = true
	}
}

// recall names a frame of n from the cache, if possible. It uses an incomplete result of an
// interrupted lookup only if ctx has ended, too.
func (k *SymbolCache) recall(ctx context.Context, n *Names, id stacks.FrameID) bool {
	if k == nil {
		return false
	}
	key := k.key(n, id)
	is, ok := k.young[key]
	if !ok {
		if is, ok = k.old[key]; !ok {
			return false
		}
		k.young[key] = is
	}
	if is.left && !n.Later || is.canceled != nil && ctx.Err() == nil {
		return false
	}
	code := n.store.Frames[id].Code
	n.found[id], n.shown[id] = is.found, is.shown
	n.files[code], n.stripped[code] = is.file, is.lacks
	n.problems[code] = cmp.Or(n.problems[code], is.canceled)
	return true
}

// remember caches the names of frames, all of the same code. It also caches that a
// frame has no name, unless it may get one later.
func (k *SymbolCache) remember(n *Names, frames []stacks.FrameID) {
	if k == nil || k.last {
		return
	}
	for _, id := range frames {
		code := n.store.Frames[id].Code
		problem := n.problems[code]
		if problem != nil && !errors.Is(problem, context.Canceled) {
			continue
		}
		if n.Ahead != nil && n.store.Codes[code].Kind == stacks.CodeKernel && !named(n.found[id]) {
			continue // code that the kernel is loading may get a name
		}
		k.young[k.key(n, id)] = knownNames{n.found[id], n.shown[id], n.files[code], n.stripped[code], n.left(id), problem}
	}
	if len(k.young) > maxKnown {
		k.young, k.old = map[knownFrame]knownNames{}, k.young
	}
}

func (k *SymbolCache) key(n *Names, id stacks.FrameID) knownFrame {
	f := n.store.Frames[id]
	key := knownFrame{code: n.store.Codes[f.Code], address: f.Address, isReturn: f.Return, epoch: f.Epoch}
	for m := n.perfMap(key.code.PerfMap); m != nil; m = m.Next() {
		_, size, _ := m.ReaderAt() // 0 if unreadable
		key.described += size
	}
	for _, t := range n.dumps[key.code.JITDumps].Tables {
		key.described += t.Size
	}
	return key
}

// table returns the open table of a file, nil if there is none, and the missing
// symbols of the file.
func (k *SymbolCache) table(file *process.File) (*symbolize.ELF, *stripped) {
	if k == nil {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.tables[file]; t != nil {
		t.round = k.round
		return t.elf, t.lacks
	}
	return nil, nil
}

// keep caches a file's table and its missing symbols. It closes the table at once if k is nil or
// will not be used again.
func (k *SymbolCache) keep(file *process.File, elf *symbolize.ELF, lacks *stripped) error {
	if k == nil || k.last {
		return elf.Close()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tables[file] = &knownTable{elf, lacks, k.round}
	return nil
}

// Trim closes the least recently used tables. No symbolization may be in progress.
func (k *SymbolCache) Trim() error { return k.trim(maxTables) }

// Shrink is like [SymbolCache.Trim], but keeps few tables, and forgets the names that were not
// used lately.
func (k *SymbolCache) Shrink() error {
	if k != nil {
		k.young, k.old = map[knownFrame]knownNames{}, k.young
	}
	return k.trim(fewTables)
}

func (k *SymbolCache) trim(keep int) error {
	if k == nil {
		return nil
	}
	k.round++
	excess := len(k.tables) - keep
	if excess <= 0 {
		return nil
	}
	type open struct {
		file *process.File
		*knownTable
	}
	var all []open
	for file, t := range k.tables {
		all = append(all, open{file, t})
	}
	slices.SortFunc(all, func(a, b open) int { return cmp.Compare(a.round, b.round) })
	var errs []error
	for _, t := range all[:excess] {
		errs = append(errs, t.elf.Close())
		delete(k.tables, t.file)
	}
	return errors.Join(errs...)
}

// Close closes all tables. Further calls do nothing.
func (k *SymbolCache) Close() error {
	if k == nil {
		return nil
	}
	var errs []error
	for _, t := range k.tables {
		errs = append(errs, t.elf.Close())
	}
	k.tables = nil
	if kernel, ok := k.kernel.(io.Closer); ok {
		errs = append(errs, kernel.Close())
	}
	k.kernel = nil
	return errors.Join(errs...)
}
