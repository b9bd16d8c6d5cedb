package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLog checks that the log of a failing command has its command line and its error.
func TestLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for range 2 { // the second run truncates the first one's log
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"convert", "--format", "text", "--log", log, "/no/such\nfile"}, &stdout, &stderr); code == 0 {
			t.Fatal("got exit code 0, want an error")
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		if first, last := lines[0], lines[len(lines)-1]; !strings.Contains(first, "msg=start") || !strings.Contains(first, `/no/such\nfile`) ||
			!strings.Contains(last, "msg=end") || !strings.Contains(last, "no such file") {
			t.Errorf("got %s", b)
		}
		if n := strings.Count(string(b), "msg=start"); n != 1 {
			t.Errorf("got %d starts, want 1", n)
		}
	}
}

// TestLogPlace tests that fulgur rejects files and links that another user may have
// created.
func TestLogPlace(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, hard, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "hard"), filepath.Join(dir, "pipe")
	for _, err := range []error{os.Symlink(victim, link), os.Link(victim, hard), unix.Mkfifo(pipe, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{link, hard, pipe, dir, filepath.Join(dir, "no", "log")} {
		if f, err := createLog(path); err == nil {
			f.Close()
			t.Errorf("got no error for %s", path)
		}
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
		t.Errorf("got %q, %v; want precious", b, err)
	}
}
