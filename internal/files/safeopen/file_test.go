package safeopen

import (
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// What does not answer is not waited for, whatever is asked of it.
func TestNoAnswer(t *testing.T) {
	testenv.Root(t)
	content := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(content, []byte(strings.Repeat("x", 4<<20)), 0o644); err != nil {
		t.Fatal(err)
	}
	file, stop := fusetest.Mount(t, content)
	f, err := Open("/", file, Regular)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil || b[15] != 'x' {
		t.Errorf("%q, %v", b[:n], err)
	}
	if n, err := f.ReadAt(b, 4<<20-8); n != 8 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
	stop()
	for _, ask := range []func() error{
		func() error { _, err := f.ReadAt(b, 2<<20); return err },
		func() error { _, err := f.Read(b); return err }, // is not asked
		func() error { _, err := Open("/", file, Regular); return err },
		func() error { _, err := Stat(file); return err },
		func() error { _, err := Open(filepath.Dir(file), "another", Regular); return err },
	} {
		if err := ask(); !errors.Is(err, answer.ErrNone) || errors.Is(err, unix.EINTR) {
			t.Errorf("error %v", err)
		}
	}
	if info, err := f.Stat(); err != nil || info.Size() != 4<<20 {
		t.Errorf("%v, %v", info, err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := Open("/", content, Regular); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
}

// One file system that does not answer is asked once, wherever it is mounted, and
// however often that is, others are asked.
func TestNoAnswerElsewhere(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(content, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, stop := fusetest.Mount(t, content)
	var files []string
	for i := range 40 {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(filepath.Dir(file), dir, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		files = append(files, filepath.Join(dir, filepath.Base(file)))
	}
	stop()
	before := runtime.NumGoroutine()
	for _, name := range files {
		for root, below := range map[string]string{"/": name, filepath.Dir(name): filepath.Base(name)} {
			if _, err := Open(root, below, Regular); !errors.Is(err, answer.ErrNone) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	}
	// A question that is open has two: who asks, and who waits for that. Others may be
	// about to end.
	if waiting := runtime.NumGoroutine() - before; waiting > len(files)/2 {
		t.Errorf("%d goroutines wait, want those of one question", waiting)
	}
	f, err := Open("/", content, Regular)
	if err != nil {
		t.Fatalf("elsewhere: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// It is the kind of file system that tells who may keep one waiting, whatever its
// device number is.
func TestReach(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(content, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, _ := fusetest.Mount(t, content)
	shared := "/dev/shm" // tmpfs, whose device number is made up
	for name, want := range map[string]standing{file: remote, filepath.Dir(file): remote, shared: onDisk, "/proc": elsewhere} {
		on, err := answer.Ask(answer.Place{Near: t.Name()}, func(v *answer.Visit) (standing, error) {
			fd, err := Path(name, AsUser)
			if err != nil {
				return 0, err
			}
			defer unix.Close(fd)
			return reach(v, fd)
		}, func(standing, error) {})
		if err != nil || on != want {
			t.Errorf("%s: %v, %v, want %v", name, on, err, want)
		}
	}
}

// What lies in one mount most likely is one place, what does not is another.
func TestPlaceOf(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/lib/debug/.build-id/ab/cdef.debug": "usr/lib/debug",
		"/usr/lib/x86_64-linux-gnu/libc.so.6":    "usr/lib/x86_64-linux-gnu",
		"usr/lib/../bin//ls":                     "usr/bin",
		"/file":                                  "",
		"":                                       "",
	} {
		if got := placeOf("/", name); got != (answer.Place{Near: path.Join("/", want)}) {
			t.Errorf("%s: got %+v, want %s", name, got, want)
		}
	}
}
