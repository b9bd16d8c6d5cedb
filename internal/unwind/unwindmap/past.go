package unwindmap

import "fulgur/internal/process"

// Past holds the mappings that a process had at some time. With it, a stack copied at that
// time can be walked after the process has ended or executed another program. Its methods are
// safe for concurrent use.
type Past struct {
	loader *Loader
	proc   *proc
}

// Past makes a layout for the past mappings of a process.
func (l *Loader) Past(maps []process.Mapping) *Past {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &Past{l, &proc{past: true}}
	l.change(p.proc, maps)
	return p
}

// Remap replaces the mappings by a larger set.
func (p *Past) Remap(maps []process.Mapping) {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	p.loader.change(p.proc, maps)
}

// Need makes the table that the walk of a stack lacks at an address.
func (p *Past) Need(addr uint64) {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	p.loader.need(p.proc, addr)
}

// Using calls f with the layout's word, which stays valid until f returns. The word is 0 while there
// is no room for a layout. Another word means that more tables were made.
func (p *Past) Using(f func(layout uint64) error) error {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	if p.proc.layout == nil {
		return f(0)
	}
	return f(p.proc.layout.word)
}

// Close releases the layout.
func (p *Past) Close() {
	p.loader.mu.Lock()
	defer p.loader.mu.Unlock()
	p.loader.dropLayout(p.proc)
	p.proc.gone = true
}
