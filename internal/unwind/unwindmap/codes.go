package unwindmap

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind"
)

// Codes makes unwind tables for walks in user space, as a [Loader] does for the kernel's walker. It makes the table of a
// file when a walk asks for it.
type Codes struct {
	finder *debugfile.Finder
	limit  int // of bytes
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	slots  chan struct{}

	mu      sync.Mutex
	files   map[fileKey]*madeCode
	bytes   int // of all tables
	pending int
	done    chan struct{} // closed when nothing is pending; nil if nothing is
	stats   Stats
}

// madeCode is the code of a file.
type madeCode struct {
	code  unwind.Code
	ready bool
}

// NewCodes returns a maker of tables that take up to limit bytes. finder finds debug files; nil means to use none.
func NewCodes(finder *debugfile.Finder, limit int) *Codes {
	c := &Codes{finder: finder, limit: limit, files: map[fileKey]*madeCode{}, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Of returns the code at an address in a mapping, and the bias of [unwind.Walker.Find]. If ready is false, the code's
// table is still being made.
func (c *Codes) Of(m *process.Mapping, addr uint64) (code unwind.Code, bias uint64, ready bool) {
	switch m.Kind {
	case process.KindFile, process.KindVDSO, process.KindVsyscall:
	default:
		return unwind.Generated(), 0, true
	}
	if code, ready = c.file(fileKey{file: m.File, kind: m.Kind, code: true}); !ready || code.Table == nil {
		return code, 0, ready
	}
	linked, ok := code.Table.Address(addr - m.Start + m.Offset)
	if !ok {
		return unwind.Code{Fallback: code.Fallback}, 0, true
	}
	return code, addr - linked, true
}

// Prepare makes the tables of files, and of the vDSO, before a walk asks for them.
func (c *Codes) Prepare(files []*process.File) {
	c.file(fileKey{kind: process.KindVDSO, code: true})
	for _, f := range files {
		c.file(fileKey{file: f, kind: process.KindFile, code: true})
	}
}

// file returns the code of a file if it is ready, and makes it otherwise.
func (c *Codes) file(key fileKey) (unwind.Code, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.files[key]
	if made == nil {
		made = &madeCode{}
		c.files[key] = made
		if c.pending++; c.done == nil {
			c.done = make(chan struct{})
		}
		c.work.Go(func() { c.make(key, made) })
	}
	return made.code, made.ready
}

// make makes the code of a file. It locks c.mu.
func (c *Codes) make(key fileKey, to *madeCode) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	c.mu.Lock()
	full := c.bytes > c.limit
	c.mu.Unlock()
	var code unwind.Code
	var err error
	if full {
		err = errMemory
	} else {
		code, err = compileKey(c.ctx, key, c.finder, 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	to.code, to.ready = code, true
	if code.Table != nil {
		c.bytes += code.Table.Bytes()
	}
	switch {
	case c.ctx.Err() != nil:
	case err == nil:
		c.stats.Tables++
	case errors.Is(err, unwind.ErrNoTable):
		c.stats.NoTable++
	case errors.Is(err, errMemory):
		c.stats.NoRoom++
	default:
		c.stats.Files++
		if c.stats.Failure == nil {
			c.stats.Failure = err
		}
	}
	if c.pending--; c.pending == 0 {
		close(c.done)
		c.done = nil
	}
}

// Wait waits until all tables are made, or ctx ends.
func (c *Codes) Wait(ctx context.Context) {
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Stats returns what was made so far. Bytes is the memory of the tables.
func (c *Codes) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Bytes = int64(c.bytes)
	return stats
}

// Close ends the work. Afterwards, no tables become ready.
func (c *Codes) Close() error {
	c.cancel()
	c.work.Wait()
	return nil
}
