package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"fulgur/internal/files/ctxfile"
)

// The end of the context ends the wait for an encoder that has written nothing yet, and what it
// writes later goes nowhere.
func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	release, late := make(chan struct{}), make(chan error)
	err := Until(ctx, &out, func(w io.Writer) error {
		cancel()
		<-release // as if it built its tables
		_, err := w.Write([]byte("late"))
		late <- err
		return err
	})
	close(release)
	if lateErr := <-late; !errors.Is(err, context.Canceled) || !errors.Is(lateErr, context.Canceled) || out.Len() > 0 {
		t.Errorf("got errors %v and %v, and output %q; want the context's errors", err, lateErr, out.String())
	}
	if err := Until(ctx, &out, func(io.Writer) error { panic("called") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v after the end, want the context's", err)
	}
	failed := errors.New("failed")
	err = Until(t.Context(), &out, func(w io.Writer) error {
		_, err := w.Write([]byte("text"))
		return errors.Join(err, failed)
	})
	if !errors.Is(err, failed) || out.String() != "text" {
		t.Errorf("got error %v and output %q, want those of the encoder", err, out.String())
	}
}

// A panic of an encoder is the caller's, which can report it.
func TestUntilPanics(t *testing.T) {
	defer func() {
		if bug := fmt.Sprint(recover()); !strings.Contains(bug, "a bug") || !strings.Contains(bug, "TestUntilPanics") {
			t.Errorf("got panic %q, want the encoder's with its stack", bug)
		}
	}()
	_ = Until(t.Context(), io.Discard, func(io.Writer) error { panic("a bug") })
}

// If a write is waiting for its reader when the context ends, the error says so.
func TestUntilUnread(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := Until(ctx, unread{cancel}, func(w io.Writer) error {
		_, err := w.Write([]byte("text"))
		return err
	})
	if err := OrInterrupted(ctx, err); !errors.Is(err, ctxfile.ErrUnread) {
		t.Errorf("got error %v, want %v", err, ctxfile.ErrUnread)
	}
}

// unread is an output whose reader does not read until an interrupt.
type unread struct{ interrupt context.CancelFunc }

func (u unread) Write([]byte) (int, error) {
	u.interrupt()
	return 0, ctxfile.ErrUnread
}
