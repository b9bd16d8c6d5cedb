package unwindmap

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
)

// largeSource is the size of call frame information in bytes above which only one file is
// compiled at a time, since compiling takes several times as much memory.
const largeSource = 1 << 20

// oneLarge is held while a large file is compiled.
var oneLarge sync.Mutex

// inputs holds the files from which a table is made.
type inputs struct {
	ctx    context.Context
	binary *debugfile.File
	finder *debugfile.Finder // nil for no separate debug file
	debug  *debugfile.File   // nil unless openDebug found one
	large  bool              // whether oneLarge is held
}

// admit waits for oneLarge if f has much call frame information.
func (in *inputs) admit(f *elffile.File) error {
	for _, name := range []string{".eh_frame", ".debug_frame"} {
		sec := f.Section(name)
		if sec == nil {
			continue
		}
		data, err := sec.Lazy()
		if errors.Is(err, elffile.ErrNoContents) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read unwind information: %w", err)
		}
		if data.Size() > largeSource && !in.large {
			oneLarge.Lock()
			in.large = true
		}
	}
	return nil
}

// openDebug opens the separate debug file. It returns nil if there is none.
func (in *inputs) openDebug() (*elffile.File, error) {
	if in.finder == nil {
		return nil, nil
	}
	found, err := in.finder.Debug(in.ctx, in.binary)
	if errors.Is(err, debugfile.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in.debug = found
	found.SetContext(in.ctx)
	return found.File, in.admit(found.File)
}

// close closes the debug file and releases oneLarge.
func (in *inputs) close() error {
	if in.large {
		oneLarge.Unlock()
	}
	if in.debug == nil {
		return nil
	}
	return in.debug.Close()
}
