package ctxfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// more is more than a pipe holds. A terminal writes each newline as two bytes, and so may have room
// for a part of a write.
var more = bytes.Repeat([]byte("012345678\n"), 100_000)

// Opening a named pipe without a reader blocks until the context ends.
func TestOpenUnread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	go func() {
		_, err := OpenPipe(ctx, path)
		opened <- err
	}()
	cancel()
	if err := testenv.Receive(t, opened, "OpenPipe does not end"); !errors.Is(err, ErrNoReader) {
		t.Errorf("got %v, want %v", err, ErrNoReader)
	}
	// The open system call still blocks.
	r, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// A write to a full pipe or terminal ends with the context, and so does the next one.
func TestWriterUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, f := range map[string]*os.File{"pipe": w, "terminal": terminal(t)} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			out := NewWriter(ctx, f)
			written := make(chan error)
			write := func() {
				_, err := out.Write(more)
				written <- err
			}
			cancel()
			for range 2 {
				go write()
				if err := testenv.Receive(t, written, "Write does not end"); !errors.Is(err, ErrUnread) {
					t.Errorf("got %v, want %v", err, ErrUnread)
				}
			}
		})
	}
}

// terminal returns a terminal whose output nothing reads.
func terminal(t *testing.T) *os.File {
	t.Helper()
	reader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	if err := unix.IoctlSetPointerInt(int(reader.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	tty.Fd() // makes writes block, as those to standard output do
	return tty
}

// A reader that reads gets everything even after the context has ended.
func TestWriterRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make(chan []byte)
	go func() {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := NewWriter(ctx, w).Write(more); n != len(more) || err != nil {
		t.Errorf("got %d bytes, %v; want %d", n, err, len(more))
	}
	w.Close()
	if b := testenv.Receive(t, got, "nothing was read"); !bytes.Equal(b, more) {
		t.Errorf("got %d bytes, want %d", len(b), len(more))
	}
}

// The end of the reader ends a write, and regular files need no reader.
func TestWriterOthers(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	if _, err := NewWriter(t.Context(), w).Write(more); !errors.Is(err, unix.EPIPE) {
		t.Errorf("without a reader: got %v, want %v", err, unix.EPIPE)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := NewWriter(ctx, f).Write(more); n != len(more) || err != nil {
		t.Errorf("file: got %d bytes, %v; want %d", n, err, len(more))
	}
}
