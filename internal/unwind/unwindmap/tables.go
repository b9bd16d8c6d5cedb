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

// hire starts another worker goroutine, unless there are limit already, beside one that analyzes code.
func (l *Loader) hire(limit int) {
	if l.analyzing {
		limit++
	}
	if l.workers < limit && l.ctx.Err() == nil {
		l.workers++
		l.working.Go(l.work)
	}
}

// work compiles tables until the queue is empty, and then one worker analyzes code. It locks l.mu.
func (l *Loader) work() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ctx.Err() == nil {
		if len(l.queue) == 0 && (l.analyzing || len(l.unanalyzed) == 0) {
			break
		}
		if len(l.queue) == 0 {
			l.analyzing = true
			f := next(&l.unanalyzed)
			l.mu.Unlock()
			made, err := l.compile(f.key, 1, false)
			l.mu.Lock()
			l.analyzing = false
			l.complete(f, made, err)
			continue
		}
		f := next(&l.queue)
		l.compiling++
		workers := 1
		if len(l.queue) == 0 && l.workers == 1 {
			workers = 0 // all
		}
		l.mu.Unlock()
		made, err := l.compile(f.key, workers, true)
		l.mu.Lock()
		l.compiling--
		if err == nil && len(made.unanalyzed) > 0 {
			l.addPart(f, made)
		} else {
			l.add(f, made, err)
		}
		if len(l.queue) == 0 && l.compiling == 0 {
			l.idle.Broadcast()
		}
	}
	l.workers--
	l.idle.Broadcast()
}

// next removes an urgent file from a queue, or else the first one.
func next(queue *[]*file) *file {
	i := max(slices.IndexFunc(*queue, func(f *file) bool { return f.urgent }), 0)
	f := (*queue)[i]
	*queue = slices.Delete(*queue, i, i+1)
	return f
}

// compiled is the result of compiling a file.
type compiled struct {
	placement placement
	words     run
	code      code
	described bool // describes more than synthetic code
	// unanalyzed is the code whose rules are still missing.
	unanalyzed []unwind.Range
	damage     error // the first unreadable part
}

// compile makes a table and places it. It locks l.mu.
func (l *Loader) compile(key fileKey, workers int, quick bool) (compiled, error) {
	table, code, err := compileKey(l.ctx, key, l.config.finder, workers, quick)
	c := compiled{code: code}
	if err != nil {
		return c, err
	}
	c.unanalyzed = table.Unanalyzed
	c.described = table.Stats.Source > 0 || table.Stats.Analyzed || len(c.unanalyzed) > 0
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

func compileKey(ctx context.Context, key fileKey, finder *debugfile.Finder, workers int, quick bool) (*unwind.Table, code, error) {
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
	return compile(ctx, s, workers, quick)
}

// addPart records a part of a file's table.
func (l *Loader) addPart(f *file, c compiled) {
	part := &file{key: f.key, layouts: map[*layout]bool{}}
	l.record(part, c, nil)
	part.unanalyzed = c.unanalyzed
	waiting, held := f.waiting, f.isHeld()
	f.part, f.waiting = part, nil
	l.unanalyzed = append(l.unanalyzed, f)
	l.stopWaiting(waiting, held)
}

// complete replaces a part of a file's table by the result of compiling the file.
func (l *Loader) complete(f *file, c compiled, err error) {
	part := f.part
	if err != nil {
		if l.ctx.Err() == nil {
			l.refuse(err)
		}
		// The part remains. Stacks end in the rest.
		f.done, f.placement, f.words, f.fallback = true, part.placement, part.words, part.fallback
		l.made(f)
		return
	}
	l.stats.Tables--
	l.stats.Bytes -= 4 * int64(part.words.n)
	c.damage = nil // known from the part
	l.add(f, c, nil)
	part.replaced = true
	if len(part.layouts) == 0 {
		l.freed = append(l.freed, part.words)
	}
}

// add records the result of compiling a file.
func (l *Loader) add(f *file, c compiled, err error) {
	l.record(f, c, err)
	l.made(f)
}

// record notes what compiling a file made.
func (l *Loader) record(f *file, c compiled, err error) {
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
	default:
		l.refuse(err)
	}
	if c.damage != nil {
		l.stats.Files++
		l.fail(c.damage)
	}
}

// refuse counts a table that cannot be made.
func (l *Loader) refuse(err error) {
	switch {
	case errors.Is(err, unwind.ErrNoTable):
		l.stats.NoTable++
	case errors.Is(err, errMemory):
		l.stats.NoRoom++
	default:
		l.stats.Files++
		l.fail(err)
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
