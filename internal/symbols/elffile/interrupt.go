package elffile

import (
	"context"
	"io"
)

// Interruptible returns a reader of r that fails with the context's cause once ctx is
// done. Use it to read large files.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	return interruptible{func() error { return context.Cause(ctx) }, r}
}

type interruptible struct {
	interrupted func() error
	r           io.Reader
}

func (i interruptible) Read(b []byte) (int, error) {
	if err := i.interrupted(); err != nil {
		return 0, err
	}
	return i.r.Read(b)
}
