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

// file returns the file of a mapping, or nil if it cannot have a table. It queues a new
// file for compilation.
func (l *Loader) file(m process.Mapping) *file {
	switch m.Kind {
	case process.KindFile, process.KindVDSO, process.KindVsyscall:
	default:
		return nil
	}
	key := fileKey{m.File, m.Kind}
	f := l.files[key]
	if f == nil {
		f = &file{key: key, layouts: map[*layout]bool{}, since: time.Now()}
		l.files[key] = f
		l.queue = append(l.queue, f)
		l.pending = append(l.pending, f)
		l.hire(runtime.GOMAXPROCS(0))
	}
	return f
}

// hire starts another worker goroutine, unless there are limit already.
func (l *Loader) hire(limit int) {
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
	words     run
	code      code
	described bool  // describes more than synthetic code
	damage    error // the first unreadable part
}

// compile makes a table and places it. It locks l.mu.
func (l *Loader) compile(key fileKey, workers int) (compiled, error) {
	table, code, err := compileKey(l.ctx, key, l.config.finder, workers)
	c := compiled{code: code}
	if err != nil {
		return c, err
	}
	c.described = table.Stats.Source > 0 || table.Stats.Analyzed
	if table.Stats.Damaged > 0 {
		c.damage = table.Stats.Damage
		if more := table.Stats.Damaged - 1; more > 0 {
			c.damage = fmt.Errorf("%w (and %d more parts that cannot be read)", c.damage, more)
		}
	}
	l.mu.Lock()
	indexes, first, fresh := l.rules.addTable(table, nativeCode.fallback(l.config.mode))
	l.kernel.writeRules(first, fresh)
	l.mu.Unlock()

	words := tableWords(table, indexes, gapRule(machine, code.fallback(l.config.mode)))
	start, err := l.pages.place(words)
	if err != nil {
		return c, err
	}
	c.words = run{start, uint32(len(words))}
	c.placement = placement{table.Segments, start, start + uint32(len(table.Blocks))}
	return c, nil
}

func compileKey(ctx context.Context, key fileKey, finder *debugfile.Finder, workers int) (*unwind.Table, code, error) {
	var s source
	var err error
	switch key.kind {
	case process.KindVsyscall:
		return vsyscallTable(), nativeCode, nil
	case process.KindVDSO:
		s, err = readVDSO()
	default:
		s, err = openFile(key.file, finder)
	}
	if err != nil {
		return nil, nativeCode, err
	}
	return compile(ctx, s, workers)
}

// add records the result of compiling a file.
func (l *Loader) add(f *file, c compiled, err error) {
	f.done = true
	f.placement, f.words = c.placement, c.words
	if err == nil && c.described && c.code == nativeCode {
		c.code = describedCode
	}
	f.fallback = c.code.fallback(l.config.mode)
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
	l.made(f)
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
