package unwindmap

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
)

// maxSource bounds the call frame information that is read of a file, in bytes.
// The largest browsers have a tenth of it; more would be a file that is made to
// take time and memory.
const maxSource = 256 << 20

// largeSource is the size in bytes from which on call frame information is compiled
// for one file at a time, since that takes several times as much memory.
const largeSource = 1 << 20

// oneLarge is held meanwhile.
var oneLarge sync.Mutex

// inputs are the files that a table is made of.
type inputs struct {
	ctx    context.Context
	source source
	file   *elffile.File
	debug  *debugfile.File // nil unless openDebug found one
	large  bool            // oneLarge is held
}

// admit returns an error for a file with too much call frame information, and waits
// its turn with one that has much.
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
		if data.Size() > maxSource {
			return fmt.Errorf("%s: %d bytes of %s are more than any program has", f.Name(), data.Size(), name)
		}
		if data.Size() > largeSource && !in.large {
			oneLarge.Lock()
			in.large = true
		}
	}
	return nil
}

// openDebug opens the separate debug file, and returns nil if there is none.
func (in *inputs) openDebug() (*elffile.File, error) {
	if in.source.finder == nil {
		return nil, nil
	}
	binary := &debugfile.File{File: in.file, Root: in.source.root, Path: in.source.name}
	found, err := in.source.finder.Debug(in.ctx, binary)
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

// close closes what openDebug opened, and lets others have their turn.
func (in *inputs) close() error {
	if in.large {
		oneLarge.Unlock()
	}
	if in.debug == nil {
		return nil
	}
	return in.debug.Close()
}
