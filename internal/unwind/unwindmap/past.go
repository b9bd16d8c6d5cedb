package unwindmap

import "fulgur/internal/process"

// Past is what a process had mapped at some time. It may have ended since, or run
// another program: stacks that were copied while it was there can still be walked. Its
// methods may be called from several goroutines.
type Past struct {
	loader *Loader
	proc   *proc
}

// Past has a layout made for what a process had mapped.
func (l *Loader) Past(maps []process.Mapping) *Past {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &Past{l, &proc{past: true}}
	l.change(p.proc, maps)
	return p
}

// Remap says that it had more mapped.
func (p *Past) Remap(maps []process.Mapping) {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	p.loader.change(p.proc, maps)
}

// Using calls f with what the kernel side knows the layout by, which stays that until
// f returns. It reports false, and does not call f, while tables are missing.
func (p *Past) Using(f func(layout uint64) error) (bool, error) {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	if p.proc.layout == nil || p.proc.wait != nil {
		return false, nil
	}
	return true, f(p.proc.layout.word)
}

// Close gives the layout up.
func (p *Past) Close() {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	p.loader.leave(p.proc)
	p.proc.wait = nil
}
