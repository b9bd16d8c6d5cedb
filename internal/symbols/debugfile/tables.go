package debugfile

import (
	"context"
	"log/slog"

	"fulgur/internal/symbols/elffile"
)

// Tables returns the files with the symbols of the functions in b: b itself and, if it was
// stripped, its debug file or what it has of that in .gnu_debugdata. The caller closes them, b too.
func (f *Finder) Tables(ctx context.Context, b *File) elffile.Tables {
	tables := elffile.Tables{b.File}
	if b.HasStatic() {
		return tables
	}
	debug, err := f.Debug(ctx, b)
	if err == nil && debug.HasStatic() {
		return append(tables, debug.File)
	}
	if err == nil {
		_ = debug.Close() // nothing was written
	} else {
		slog.Debug("no symbols", "file", b.Name(), "error", err)
	}
	if embedded, err := b.Embedded(); err == nil && embedded != nil {
		tables = append(tables, embedded)
	}
	return tables
}
