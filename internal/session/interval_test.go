package session

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fulgur/internal/message/usage"
	"fulgur/internal/profile/encode/encodetest"
)

// filesIn returns the names of the files in dir.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Only files that the run wrote and that have not been replaced are removed. Numbers
// continue after the numbers of an earlier run.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"name-0001.folded", "name-0007.folded", "name-0009.txt", "other-0050.folded", "name-x.folded"} {
		put(name)
	}
	var stderr bytes.Buffer
	o := &Options{Output: filepath.Join(dir, "name.folded"), Stderr: &stderr}
	files, err := Files(o, 2)
	if err != nil {
		t.Fatal(err)
	}
	window := func(n int) {
		t.Helper()
		if err := files.Write(t.Context(), Window{Number: n, Profile: encodetest.Typical()}); err != nil {
			t.Fatal(err)
		}
	}
	window(1)
	window(2)
	// Replace the first file.
	if err := os.Remove(filepath.Join(dir, "name-0008.folded")); err != nil {
		t.Fatal(err)
	}
	put("name-0008.folded")
	if err := os.Chtimes(filepath.Join(dir, "name-0008.folded"), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		window(3 + n)
	}
	want := []string{
		"name-0001.folded", "name-0007.folded", "name-0008.folded", "name-0009.txt",
		"name-0011.folded", "name-0012.folded", "name-x.folded", "other-0050.folded",
	}
	if got := filesIn(t, dir); !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
	if lines := bytes.Count(stderr.Bytes(), []byte("\n")); lines != 5 {
		t.Errorf("got %d lines for 5 windows, want one each:\n%s", lines, &stderr)
	}
}

// Two runs with the same file names do not remove each other's files.
func TestTwoRuns(t *testing.T) {
	dir := t.TempDir()
	o := &Options{Output: filepath.Join(dir, "name.folded"), Stderr: io.Discard}
	// The largest number is ignored, because none can follow it.
	if err := os.WriteFile(filepath.Join(dir, "name-9223372036854775807.folded"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var runs []Sink
	for range 2 {
		files, err := Files(o, 1)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, files)
	}
	for n := range 3 {
		for _, files := range runs {
			if err := files.Write(t.Context(), Window{Number: n + 1, Profile: encodetest.Typical()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{"name-0005.folded", "name-0006.folded", "name-9223372036854775807.folded"}
	if got := filesIn(t, dir); !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
}

func TestFilesRefuse(t *testing.T) {
	for _, output := range []string{"", "-", "/dev/stdout", "name.unknown"} {
		if _, err := Files(&Options{Output: output}, 0); !errors.Is(err, usage.Err) {
			t.Errorf("output %q: got error %v, want a usage error", output, err)
		}
	}
	if _, err := Files(&Options{Output: "/no/such/directory/name.folded"}, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, fs.ErrNotExist)
	}
}
