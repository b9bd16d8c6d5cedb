package output

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/ctxfile"
	"fulgur/internal/testenv"
)

// On failure, Create returns a nil interface, not one with a nil pointer.
func TestCreateFails(t *testing.T) {
	out, err := Create(t.Context(), filepath.Join(t.TempDir(), "missing", "out"), io.Discard)
	if err == nil || out != nil {
		t.Errorf("got output %v, error %v; want nil and an error", out, err)
	}
}

// An interrupt ends the waits of outputs for their readers, and the error says so.
func TestUnread(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink(fifo, link)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error)
	for _, path := range []string{fifo, link} {
		go func() {
			_, err := Create(ctx, path, nil)
			ended <- err
		}()
		if err := OrInterrupted(ctx, testenv.Receive(t, ended, "Create does not end")); !errors.Is(err, ctxfile.ErrNoReader) {
			t.Errorf("create %s: got %v, want %v", path, err, ctxfile.ErrNoReader)
		}
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0) // ends the calls of open that still block
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	reader, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer w.Close()
	for path, stdout := range map[string]*os.File{fifo: nil, "-": w} {
		out, err := Create(ctx, path, stdout)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := out.Write(make([]byte, 1<<20))
			ended <- errors.Join(err, out.Commit())
		}()
		if err := OrInterrupted(ctx, testenv.Receive(t, ended, "Write does not end")); !errors.Is(err, ctxfile.ErrUnread) {
			t.Errorf("write %s: got %v, want %v", path, err, ctxfile.ErrUnread)
		}
	}
}
