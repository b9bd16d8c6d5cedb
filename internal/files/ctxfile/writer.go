package ctxfile

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// GaveUpError is the error of a wait that a context has ended. It says what was not written.
type GaveUpError string

func (g GaveUpError) Error() string { return "interrupted: " + string(g) }

const (
	// ErrNoReader is the error of [OpenPipe].
	ErrNoReader GaveUpError = "nothing has opened it for reading, so nothing was written: start its reader first, or choose a file"
	// ErrUnread is the error of a [Writer].
	ErrUnread GaveUpError = "its reader does not read, so the rest was not written: choose a file instead"
)

// lastWait is how long a [Writer] waits for a reader after the context is done. A reader that
// is only slow gets everything.
const lastWait = time.Second

// atOnce is the number of bytes of one write. A reader that takes at least that many a second is
// only slow.
const atOnce = 4096

// OpenPipe opens a pipe or device for writing. A named pipe blocks until it has a reader. If ctx
// is done first, the error is [ErrNoReader].
func OpenPipe(ctx context.Context, path string) (*os.File, error) {
	f, err := open(ctx, path, os.O_WRONLY)
	if err == nil || ctx.Err() == nil {
		return f, err
	}
	f, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0) // it may need no wait
	if errors.Is(err, unix.ENXIO) {
		err = ErrNoReader
	}
	return f, err
}

// Writer writes to an open file. Once ctx is done, it gives up if a pipe or terminal does not take
// a few KiB in a second.
type Writer struct {
	ctx   context.Context
	f     *os.File
	chunk []byte // what is being written, perhaps still after Write has given up
	done  chan result
	err   error
}

// result is what a write system call returned.
type result struct {
	n   int
	err error
}

// NewWriter returns a writer to f.
func NewWriter(ctx context.Context, f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode().IsRegular() {
		return f // a write does not wait for a reader, and reports the error
	}
	return &Writer{ctx: ctx, f: f, done: make(chan result, 1)}
}

// Write implements io.Writer. After it has given up, it returns [ErrUnread], as all later calls do.
func (w *Writer) Write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		var n int
		n, err = w.write(b[written:min(len(b), written+atOnce)])
		written += n
	}
	return written, err
}

// write writes a few bytes. A goroutine waits for room: poll already returns when a terminal has
// room for one byte, and a write of more then blocks.
func (w *Writer) write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.chunk = append(w.chunk[:0], b...)
	go func() {
		n, err := w.f.Write(w.chunk)
		w.done <- result{n, err}
	}()
	select {
	case r := <-w.done:
		return r.n, r.err
	case <-w.ctx.Done():
	}
	select {
	case r := <-w.done:
		return r.n, r.err
	case <-time.After(lastWait):
		w.err = ErrUnread
		return 0, w.err
	}
}
