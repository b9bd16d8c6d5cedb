package ctxfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// more is more than a pipe holds.
var more = bytes.Repeat([]byte("0123456789"), 100_000)

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

// A write to a full pipe ends with the context, and so does the next one.
func TestWriterUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out := NewWriter(ctx, w)
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
