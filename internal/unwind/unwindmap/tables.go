package unwindmap

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind"
)

// file returns the best table of a mapping's file, made or not, or nil if it cannot have one.
func (l *Loader) file(m process.Mapping) *file {
	switch m.Kind {
	case process.KindFile, process.KindVDSO, process.KindVsyscall:
	default:
		return nil
	}
	key := fileKey{file: m.File, kind: m.Kind, code: true}
	if f := l.files[key]; f != nil && f.done {
		return f
	}
	key.code = false
	return l.named(key)
}

// code returns the table of a file's code.
func (l *Loader) code(f *file) *file {
	key := f.key
	key.code = true
	return l.named(key)
}

// named returns the table with a key.
func (l *Loader) named(key fileKey) *file {
	f := l.files[key]
	if f == nil {
		f = &file{key: key, layouts: map[*layout]bool{}, waiting: map[*proc]bool{}}
		l.files[key] = f
	}
	return f
}

// prepare makes the tables of a mapping's file. It analyzes its code if that has at most the given
// number of bytes.
func (l *Loader) prepare(m process.Mapping, code uint64) {
	f := l.file(m)
	if f == nil {
		return
	}
	f.ahead = max(f.ahead, code)
	if f.done {
		l.prepareCode(f)
	} else {
		l.enqueue(f, false)
	}
}

// prepareCode makes the other table of a file that is done, if wanted.
func (l *Loader) prepareCode(f *file) {
	if f.unread > 0 && f.unread <= f.ahead {
		l.enqueue(l.code(f), false)
	}
}

// enqueue makes a table. urgent means that the walk of a stack needs it.
func (l *Loader) enqueue(f *file, urgent bool) {
	if !f.queued {
		f.queued, f.since = true, time.Now()
		l.queue = append(l.queue, f)
		l.pending = append(l.pending, f)
		l.startWorker(runtime.GOMAXPROCS(0))
	}
	if urgent && !f.urgent {
		f.urgent = true
		// The existing workers may be busy with large files that are less urgent.
		l.startWorker(2 * runtime.GOMAXPROCS(0))
	}
}

// startWorker starts another worker goroutine, unless there are limit already.
func (l *Loader) startWorker(limit int) {
	if l.workers < limit && l.ctx.Err() == nil {
		l.workers++
		l.working.Go(l.work)
	}
}

// work compiles tables until the queue is empty. It locks l.mu.
func (l *Loader) work() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && l.ctx.Err() == nil {
		i := max(slices.IndexFunc(l.queue, func(f *file) bool { return f.urgent }), 0)
		f := l.queue[i]
		l.queue = slices.Delete(l.queue, i, i+1)
		workers := 1
		if len(l.queue) == 0 && l.workers == 1 {
			workers = 0 // all
		}
		l.mu.Unlock()
		made, err := l.compile(f.key, workers)
		l.mu.Lock()
		l.add(f, made, err)
	}
	l.workers--
	if l.workers == 0 {
		l.idle.Broadcast()
	}
}

// compiled is the result of compiling a file.
type compiled struct {
	placement placement
	words     span
	fallback  unwind.Rule
	unread    uint64 // bytes of code left to analyze
	damage    error  // the first unreadable part
}

// compile makes a table and places it. It locks l.mu.
func (l *Loader) compile(key fileKey, workers int) (compiled, error) {
	code, err := compileKey(l.ctx, key, l.config.finder, workers)
	c := compiled{fallback: code.Fallback}
	if err != nil {
		return c, err
	}
	table := code.Table
	c.unread = table.Stats.Unread
	if table.Stats.Damaged > 0 {
		c.damage = table.Stats.Damage
		if more := table.Stats.Damaged - 1; more > 0 {
			c.damage = fmt.Errorf("%w (and %d more parts that cannot be read)", c.damage, more)
		}
	}
	l.mu.Lock()
	indexes, first, fresh := l.rules.addTable(table)
	l.kernel.writeRules(first, fresh)
	l.mu.Unlock()

	words := tableWords(table, indexes)
	start, err := l.pages.place(words)
	if err != nil {
		return c, err
	}
	c.words = span{start, uint32(len(words))}
	c.placement = placement{table.Segments, start, start + uint32(len(table.Blocks))}
	return c, nil
}

func compileKey(ctx context.Context, key fileKey, finder *debugfile.Finder, workers int) (unwind.Code, error) {
	var s input
	var err error
	switch key.kind {
	case process.KindVsyscall:
		return unwind.Code{Table: vsyscallTable()}, nil
	case process.KindVDSO:
		s, err = readVDSO()
	default:
		s, err = openFile(key.file, finder)
	}
	if err != nil {
		return unwind.Generated(), err
	}
	return compile(ctx, s, unwind.Options{Workers: workers, Deferred: !key.code})
}

// add records the result of compiling a file.
func (l *Loader) add(f *file, c compiled, err error) {
	f.done = true
	f.placement, f.words, f.unread = c.placement, c.words, c.unread
	f.fallback = l.rules.index[c.fallback]
	switch {
	case l.ctx.Err() != nil:
	case err == nil:
		l.stats.Tables++
		l.stats.Bytes += 4 * int64(c.words.n)
	case errors.Is(err, unwind.ErrNoTable):
		l.stats.NoTable++
	case errors.Is(err, errMemory):
		l.stats.NoRoom++
	default:
		l.stats.Files++
		l.fail(err)
	}
	if c.damage != nil {
		l.stats.Files++
		l.fail(c.damage)
	}
	l.prepareCode(f)
	l.made(f)
	if len(f.layouts) == 0 {
		l.unused = append(l.unused, f) // the processes that needed it have ended
	}
}

// reload brings back evicted pages until none is wanted. It locks l.mu.
func (l *Loader) reload() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.wanted) > 0 && l.ctx.Err() == nil {
		wanted := l.wanted
		l.wanted = nil
		l.mu.Unlock()
		err := l.pages.reload(wanted)
		l.mu.Lock()
		if err != nil {
			l.fail(err)
		}
	}
	l.reloading = false
}
