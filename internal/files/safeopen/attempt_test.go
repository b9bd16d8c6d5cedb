package safeopen

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// Attempts on disk run in any directory, also one that does not exist yet.
func TestAttempt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	name := filepath.Join(dir, "file")
	for range 2 {
		_, err := Attempt(dir, func() (struct{}, error) { return struct{}{}, os.MkdirAll(name, 0o700) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	want := errors.New("failed")
	if _, err := Attempt(name, func() (int, error) { return 0, want }); !errors.Is(err, want) {
		t.Errorf("got error %v, want the attempt's", err)
	}
	for _, name := range []string{dir, "relative", "/", "/dev/stdout", "/dev/null", ""} {
		slow := func() { t.Errorf("%s: does not answer", name) }
		if err := errors.Join(Answer(name), Await(t.Context(), name, slow)); err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		}
	}
}

// A file system that stopped is asked in vain once, and attempts on it do not run.
func TestAttemptNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	file, stop := fusetest.Mount(t, fusetest.File(t, "x"))
	dir := filepath.Dir(file)
	if err := untilAnswered(t, func() error { return Answer(dir + "/a/b") }); err != nil {
		t.Fatal(err)
	}
	began := false
	err := untilAnswered(t, func() error {
		_, err := Attempt(dir, func() (fs.FileInfo, error) { began = true; return os.Stat(file) })
		return err
	})
	if err != nil || !began {
		t.Fatalf("got error %v, want none", err)
	}
	stop()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, dir + "/a/b", file, link, link + "/a"} {
		if err := Answer(name); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: got error %v, want %v", name, err, ErrNoAnswer)
		}
		_, err := Attempt(name, func() (int, error) {
			t.Errorf("%s: the attempt runs", name)
			return 0, nil
		})
		var path *fs.PathError
		if !errors.Is(err, ErrNoAnswer) || !errors.As(err, &path) || path.Path != name {
			t.Errorf("%s: got error %v, want %v with the path", name, err, ErrNoAnswer)
		}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err = Await(ctx, name, func() {
			calls++
			cancel()
		})
		if !errors.Is(err, ErrNoAnswer) || calls != 1 {
			t.Errorf("%s: got error %v after %d reports, want %v after one", name, err, calls, ErrNoAnswer)
		}
	}
}

// A file system may stop during an attempt.
func TestAttemptStops(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	file, stop := fusetest.Mount(t, fusetest.File(t, "x"))
	var begun atomic.Bool
	// On a slow machine, the question before the attempt may remain without an answer.
	testenv.Await(t, func() bool {
		_, err := Attempt(filepath.Dir(file), func() (fs.FileInfo, error) {
			begun.Store(true)
			stop()
			return os.Stat(file)
		})
		if !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("got error %v, want %v", err, ErrNoAnswer)
		}
		return begun.Load()
	}, func() string { return "the file system does not answer" })
}
