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

// atOnce is the number of bytes that a write to a pipe does not block for if poll reports room:
// PIPE_BUF.
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

// Writer writes to an open file. Once ctx is done, it gives up if a pipe or terminal has no room
// for a second.
type Writer struct {
	ctx context.Context
	f   *os.File
	err error
}

// NewWriter returns a writer to f.
func NewWriter(ctx context.Context, f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode().IsRegular() {
		return f // a write does not wait for a reader, and reports the error
	}
	return &Writer{ctx: ctx, f: f}
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (written int, err error) {
	for written < len(b) {
		if err := w.wait(); err != nil {
			return written, err
		}
		n, err := w.f.Write(b[written:min(len(b), written+atOnce)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// wait returns when there is room, or with [ErrUnread], as all later calls do.
func (w *Writer) wait() error {
	var end time.Time
	for w.err == nil {
		ready, err := poll(w.f, unix.POLLOUT)
		switch {
		case err != nil:
			return os.NewSyscallError("poll", err)
		case ready:
			return nil
		case w.ctx.Err() == nil:
		case end.IsZero():
			end = time.Now().Add(lastWait)
		case time.Now().After(end):
			w.err = ErrUnread
		}
	}
	return w.err
}
