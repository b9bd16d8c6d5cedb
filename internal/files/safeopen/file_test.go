package safeopen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// untilAnswered repeats ask until a file system that responds has answered.
func untilAnswered(t *testing.T, ask func() error) error {
	t.Helper()
	return fusetest.UntilAnswered(t, ErrNoAnswer, ask)
}

// Operations on a file system that hangs do not block.
func TestNoAnswer(t *testing.T) {
	testenv.Root(t)
	content := fusetest.File(t, strings.Repeat("x", 4<<20))
	file, stop := fusetest.Mount(t, content)
	var f *File
	if err := untilAnswered(t, func() (err error) { f, err = Open("/", file, Regular); return err }); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	n := 0
	readAt := func(off int64) error {
		return untilAnswered(t, func() (err error) { n, err = f.ReadAt(b, off); return err })
	}
	if err := readAt(0); n != len(b) || err != nil || b[15] != 'x' {
		t.Errorf("got %q, %v; want only x", b[:n], err)
	}
	if err := readAt(4<<20 - 8); n != 8 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %d, %v; want 8, EOF", n, err)
	}
	stop()
	for _, ask := range []func() error{
		func() error { _, err := f.ReadAt(b, 2<<20); return err },
		func() error { _, err := f.Read(b); return err }, // fails at once
		func() error { _, err := Open("/", file, Regular); return err },
		func() error { _, err := Stat(file); return err },
		func() error { _, err := Open(filepath.Dir(file), "another", Regular); return err },
	} {
		if err := ask(); !errors.Is(err, ErrNoAnswer) || errors.Is(err, unix.EINTR) {
			t.Errorf("got error %v, want ErrNoAnswer", err)
		}
	}
	if info, err := f.Stat(); err != nil || info.Size() != 4<<20 {
		t.Errorf("got %v, %v; want %d bytes", info, err, 4<<20)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := Open("/", content, Regular); err != nil {
		t.Errorf("other file system: %v", err)
	}
}

// A file system that hangs is asked only once, even if it has many mounts. Other file
// systems are not affected.
func TestNoAnswerElsewhere(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content := fusetest.File(t, "x")
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
			if _, err := Open(root, below, Regular); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("%s: got error %v, want ErrNoAnswer", name, err)
			}
		}
	}
	// An open question uses two goroutines. Others are about to end.
	testenv.Await(t, func() bool { return runtime.NumGoroutine()-before <= 2 }, func() string {
		return fmt.Sprintf("got %d waiting goroutines, want the two of one question", runtime.NumGoroutine()-before)
	})
	f, err := Open("/", content, Regular)
	if err != nil {
		t.Fatalf("other file system: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// The type of a file system decides whether it may hang, not its device number.
func TestReach(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	file, _ := fusetest.Mount(t, fusetest.File(t, "x"))
	shared := "/dev/shm" // tmpfs, which has an anonymous device number
	for name, want := range map[string]access{file: helped, filepath.Dir(file): helped, shared: direct, "/proc": timed} {
		var on access
		err := untilAnswered(t, func() (err error) {
			on, err = Ask(nil, Backend{Path: t.Name()}, func(v *Request) (access, error) {
				fd, err := Path(name, AsUser)
				if err != nil {
					return 0, err
				}
				defer unix.Close(fd)
				return reach(v, fd)
			})
			return err
		})
		if err != nil || on != want {
			t.Errorf("%s: got %v, %v, want %v", name, on, err, want)
		}
	}
}

// Paths that are probably in the same mount have the same place, others do not.
func TestBackendOf(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/lib/debug/.build-id/ab/cdef.debug": "usr/lib/debug",
		"/usr/lib/x86_64-linux-gnu/libc.so.6":    "usr/lib/x86_64-linux-gnu",
		"usr/lib/../bin//ls":                     "usr/bin",
		"/file":                                  "",
		"":                                       "",
	} {
		if got := backendOf("/", name); got != (Backend{Path: path.Join("/", want)}) {
			t.Errorf("%s: got %+v, want %s", name, got, want)
		}
	}
}
