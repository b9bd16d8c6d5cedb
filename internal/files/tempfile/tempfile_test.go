package tempfile

import (
	"errors"
	"io/fs"
	"os"
	"testing"
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
