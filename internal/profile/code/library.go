package code

import (
	"context"
	"errors"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// Library holds the files of a profile, and opens each on first use. Its methods are safe
// for concurrent use.
type Library struct {
	ctx     context.Context
	finder  *debugfile.Finder
	options symbolize.Options
	proven  bool // see OnlyProven

	kernel func() (*Kernel, error)

	mu     sync.Mutex
	opened bool // the kernel
	files  map[key]func() (*File, error)
}

// key identifies a file.
type key struct{ path, buildID string }

// NewLibrary returns a library that finds debug files with finder. When ctx is done,
// downloads and reading of debug information stop.
func NewLibrary(ctx context.Context, finder *debugfile.Finder, o symbolize.Options) *Library {
	return &Library{
		ctx: ctx, finder: finder, options: o, kernel: sync.OnceValues(openKernel),
		files: map[key]func() (*File, error){},
	}
}

// OnlyProven makes [Library.Mapped] refuse files that the build ID of the profile does not prove to be the profiled ones. It
// must be called before the first use of the library.
func (l *Library) OnlyProven() { l.proven = true }

// File returns the file that was mapped as path, like [Open]. The library closes it.
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

// Close closes all files. They must not be used afterwards.
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
	if l.opened {
		if k, err := l.kernel(); err == nil {
			errs = append(errs, k.Close())
		}
	}
	return errors.Join(errs...)
}
