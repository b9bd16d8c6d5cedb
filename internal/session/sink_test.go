package session

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A file whose profile was not written is discarded, and the one that was there is kept.
func TestProfileFileDiscarded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(path, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &profileFile{outputFile: outputFile{options: &Options{Output: path}}}
	if err := f.Close(); err != nil {
		t.Errorf("close before open: %v", err)
	}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Output.Write([]byte("incomplete")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(text, []byte("earlier")) || len(files) != 1 {
		t.Errorf("%q, %v, files %v", text, err, files)
	}
}
