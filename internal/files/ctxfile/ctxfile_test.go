package ctxfile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

func TestRegular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "content" || f.Name() != path {
		t.Errorf("got %q, %v, name %q; want content and the path", b, err, f.Name())
	}
	if _, err := f.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != "tent" {
		t.Errorf("got %q, %v; want tent", b, err)
	}
	cancel()
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: got error %v, want %v", err, context.Canceled)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadAt: got error %v, want %v", err, context.Canceled)
	}
}

// A read that blocks on a pipe ends with the context.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	f, err := newFile(ctx, r, "pipe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("got %d bytes, %v; want 1", n, err)
	}
	ended := make(chan error)
	go func() {
		_, err := f.Read(make([]byte, 8))
		ended <- err
	}()
	cancel()
	if err := testenv.Receive(t, ended, "Read does not end"); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: got error %v, want %v", err, context.Canceled)
	}
}

func TestPipeEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFile(t.Context(), r, "pipe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w.Close()
	if _, err := f.Read(make([]byte, 8)); !errors.Is(err, io.EOF) {
		t.Errorf("Read: got error %v, want %v", err, io.EOF)
	}
}

func TestMissing(t *testing.T) {
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "missing")); !os.IsNotExist(err) {
		t.Errorf("got error %v, want that the file does not exist", err)
	}
}

// Opening a named pipe without a writer blocks until the context ends.
func TestOpenUnwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	go func() {
		_, err := Open(ctx, path)
		opened <- err
	}()
	cancel()
	if err := testenv.Receive(t, opened, "Open does not end"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	// The open system call still blocks.
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

func TestCloseTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}
