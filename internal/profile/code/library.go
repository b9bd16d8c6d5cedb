package code

import (
	"context"
	"errors"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// Library holds the files of a profile, each opened when it is first asked for.
// Its methods may be called from several goroutines.
type Library struct {
	ctx     context.Context
	finder  *debugfile.Finder
	options symbolize.Options

	mu    sync.Mutex
	files map[key]func() (*File, error)
}

// key is what a file is known by.
type key struct{ path, buildID string }

// NewLibrary returns a library of files, and of debug files that finder finds.
// The end of ctx ends downloads, and reading debug information.
func NewLibrary(ctx context.Context, finder *debugfile.Finder, o symbolize.Options) *Library {
	return &Library{ctx: ctx, finder: finder, options: o, files: map[key]func() (*File, error){}}
}

// File returns the file that was mapped as path, as [Open] does. The library
// closes it.
func (l *Library) File(path, buildID string) (*File, error) {
	l.mu.Lock()
	open, ok := l.files[key{path, buildID}]
	if !ok {
		open = sync.OnceValues(func() (*File, error) { return Open(l.ctx, l.finder, path, buildID, l.options) })
		l.files[key{path, buildID}] = open
	}
	l.mu.Unlock()
	return open()
}

// Close closes all files, which nobody may use any more.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, open := range l.files {
		if f, err := open(); err == nil {
			errs = append(errs, f.Close())
		}
	}
	l.files = nil
	return errors.Join(errs...)
}
