package perfdata

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
)

// TestOpen reads files and pipes, and distinguishes perf.data from text.
func TestOpen(t *testing.T) {
	data := gunzip(t, "perf.data.branch-4.14")
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(pipe, data, 0o600)
	for path, samples := range map[string]uint64{
		writeFile(t, filepath.Join(dir, "perf.data"), data): 13,
		pipe: 13,
		filepath.Join("testdata", "perf.data.branch-4.14.gz"):                   13,
		writeFile(t, filepath.Join(dir, "text"), []byte("1 0x1/0x2/P/-/-/1\n")): 1,
		writeFile(t, filepath.Join(dir, "empty"), nil):                          0,
	} {
		stats, err := collectPath(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Samples != samples {
			t.Errorf("%s: got %d samples, want %d", path, stats.Samples, samples)
		}
	}
	if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: got error %v, want %q in it", err, "is a directory")
	}
	program := writeFile(t, filepath.Join(dir, "program"), []byte("\x7fELF\x02\x01\x01\x00"))
	if _, err := Open(t.Context(), program); err == nil || !strings.Contains(err.Error(), "neither a perf.data file") {
		t.Errorf("program: got error %v, want %q in it", err, "neither a perf.data file")
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("missing file: got error %v, want that it does not exist", err)
	}
}

func collectPath(ctx context.Context, path string) (Stats, error) {
	in, err := Open(ctx, path)
	if err != nil {
		return Stats{}, err
	}
	defer in.Close()
	c := bolt.NewCollector(bolt.Options{})
	defer c.Close()
	return in.Collect(ctx, c, Options{Find: func(Mapped) *bolt.Binary { return nil }})
}
