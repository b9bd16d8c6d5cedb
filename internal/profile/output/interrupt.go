package output

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"fulgur/internal/files/ctxfile"
)

// errInterrupted is the error of a run that writes complete files only, when the user
// interrupts it.
var errInterrupted = errors.New("interrupted: incomplete output was not written")

// OrInterrupted returns err, or errInterrupted if ctx is done and caused it. It keeps errors
// that say what a wait left unwritten.
func OrInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.As(err, new(ctxfile.GaveUpError)) {
		return errInterrupted
	}
	return err
}

// Outlive opens the output of a measurement with create. Until it is open, the context of its
// waits ends with ctx. Then only giveUp ends it: the interrupt that ends the measurement does not
// end waits for the reader of the result, or for a back end.
func Outlive[T any](ctx context.Context, create func(waits context.Context) (T, error)) (out T, giveUp context.CancelFunc, err error) {
	waits, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, giveUp)()
	out, err = create(waits)
	return out, giveUp, err
}

// WaitUntil returns a writer to w that no longer waits for a reader once ctx is done.
func WaitUntil(ctx context.Context, w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return ctxfile.NewWriter(ctx, f)
	}
	return w
}

// Until calls write, which writes to w, until ctx is done. Of a large profile, encoders build
// tables for a minute before they write anything, mostly in sorting and marshaling, which
// nothing can interrupt. So write then continues in the background, but no more reaches w.
// It may still read the profile, which must not be changed.
func Until(ctx context.Context, w io.Writer, write func(io.Writer) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	u := &untilWriter{ctx: ctx, w: w}
	_, err := ctxfile.Run(ctx, func() (struct{}, error) { return struct{}{}, write(u) })
	if err != nil && errors.Is(err, ctx.Err()) {
		u.mu.Lock() // until no write is in progress
		defer u.mu.Unlock()
		return cmp.Or(u.err, err)
	}
	return err
}

// untilWriter is a writer that fails once ctx is done.
type untilWriter struct {
	ctx context.Context
	mu  sync.Mutex
	w   io.Writer
	err error // of a write, which may say that a wait for the reader ended
}

// Write implements io.Writer.
func (u *untilWriter) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := u.w.Write(b)
	u.err = cmp.Or(u.err, err)
	return n, err
}
