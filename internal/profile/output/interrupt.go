package output

import (
	"context"
	"errors"
	"io"

	"fulgur/internal/files/ctxfile"
)

// errInterrupted is the error of a run that writes complete files only, when the user
// interrupts it.
var errInterrupted = errors.New("interrupted: incomplete output was not written")

// OrInterrupted returns err, or errInterrupted if ctx is done and caused it. It keeps errors
// that say what a wait left unwritten.
func OrInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.As(err, new(ctxfile.GaveUp)) {
		return errInterrupted
	}
	return err
}

// Until returns a writer that fails once ctx is done.
func Until(ctx context.Context, w io.Writer) io.Writer { return untilWriter{ctx, w} }

type untilWriter struct {
	ctx context.Context
	w   io.Writer
}

func (u untilWriter) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}
