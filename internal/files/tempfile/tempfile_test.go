package tempfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	for name, tmpdir := range map[string]string{
		"TMPDIR":  dir,
		"default": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", tmpdir)
			f, err := Create()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte("text"), 1<<20); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 4)
			if _, err := f.ReadAt(b, 1<<20); err != nil || string(b) != "text" {
				t.Errorf("got %q, %v; want text", b, err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("got files left: %v, %v; want none", left, err)
			}
		})
	}
	t.Setenv("TMPDIR", dir+"/missing")
	if f, err := Create(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: got %v, %v; want %v", f, err, fs.ErrNotExist)
	}
}

// A file system that does not respond is not waited for.
func TestCreateNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	file, stop := fusetest.Mount(t, fusetest.File(t, "x"))
	stop()
	t.Setenv("TMPDIR", filepath.Dir(file))
	created := make(chan error, 1)
	go func() {
		_, err := Create()
		created <- err
	}()
	if err := testenv.Receive(t, created, "Create waits for the file system"); !errors.Is(err, safeopen.ErrNoAnswer) {
		t.Errorf("got error %v, want %v", err, safeopen.ErrNoAnswer)
	}
}
