package perfdata

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/files/ctxfile"
	"fulgur/internal/files/unpack"
	"fulgur/internal/profile"
)

// Unpacked returns a temporary file with the contents of f, which it closes, if f is compressed
// perf.data, which is read at any offset, or JSON that browsers cannot unpack. It returns any other
// file as it is, at its beginning. On error, f stays open.
func Unpacked(ctx context.Context, f *ctxfile.File) (*ctxfile.File, error) {
	return unpackedIf(ctx, f, func(method *unpack.Method, head []byte) bool {
		return IsPerfData(head) || method.Name != "gzip" && len(head) > 0 && head[0] == '{'
	})
}

// unpackedIf returns a temporary file with the contents of f if it is compressed, and wanted accepts
// its method and its first bytes.
func unpackedIf(ctx context.Context, f *ctxfile.File, wanted func(*unpack.Method, []byte) bool) (*ctxfile.File, error) {
	file, err := unpackInto(ctx, bufio.NewReader(f), f.Name(), wanted)
	if err != nil {
		return nil, err
	}
	if file == nil {
		_, err := f.Seek(0, io.SeekStart)
		return f, err
	}
	_ = f.Close() // read-only
	return file, nil
}

// unpackInto returns a temporary file with the data of r, nil if it is not compressed or not wanted.
func unpackInto(ctx context.Context, r *bufio.Reader, name string, wanted func(*unpack.Method, []byte) bool) (file *ctxfile.File, err error) {
	method := unpack.Peek(r)
	if method == nil {
		return nil, nil
	}
	plain, err := method.Reader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	in := bufio.NewReader(plain)
	if head, _ := in.Peek(len(magicFile)); !wanted(method, head) { // the readers of other formats report errors
		return nil, nil
	}
	file, err = ctxfile.Temporary(ctx, io.LimitReader(in, profile.MaxUnpacked+1), name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() > profile.MaxUnpacked {
		err = fmt.Errorf("%s: %w", name, profile.ErrUnpacked)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
