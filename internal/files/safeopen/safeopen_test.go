package safeopen

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// TestOpen checks that only regular files are opened, for all kinds of paths.
func TestOpen(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "dir"), 0o755),
		os.WriteFile(filepath.Join(root, "dir", "file"), []byte("inside"), 0o644),
		os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o644),
		os.Symlink("/dir/file", filepath.Join(root, "absolute")),
		os.Symlink("../../../dir/file", filepath.Join(root, "upward")),
		os.Symlink(outside+"/file", filepath.Join(root, "escape")),
		os.Symlink("pipe", filepath.Join(root, "to-pipe")),
		unix.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		root, name, want string
		err              error
	}{
		{root, "/dir/file", "inside", nil},
		{root, "absolute", "inside", nil},
		{root, "upward", "inside", nil},
		{root, "../../dir/file", "inside", nil},
		{root, "escape", "", os.ErrNotExist},
		{root, "dir/file/", "", unix.ENOTDIR},
		{root, "with\x00end", "", unix.EINVAL},
		{root, "dir", "", errNotRegular},
		{root, "", "", errNotRegular},
		{root, "pipe", "", errNotRegular},
		{root, "to-pipe", "", errNotRegular},
		{"/", filepath.Join(root, "pipe"), "", errNotRegular},
		{"/", filepath.Join(outside, "file"), "outside", nil},
		{"/", "/dev/null", "", errNotRegular},
		{"/", "/proc/self/exe", "", unix.ELOOP},
		{"/", "/proc/self/root" + outside + "/file", "", unix.ELOOP},
		{filepath.Join(root, "missing"), "file", "", os.ErrNotExist},
	} {
		f, err := Open(tt.root, tt.name, Regular)
		check(t, f, err, tt.root, tt.name, tt.want, tt.err)
		dir, err := Open(tt.root, "/", Directory)
		if err != nil || tt.name == "" {
			continue // no directory, or no entry of it
		}
		for _, on := range []access{direct, timed} {
			below := *dir
			below.on = on
			f, err := below.OpenEntry(tt.name, Regular)
			check(t, f, err, tt.root, tt.name, tt.want, tt.err)
		}
		dir.Close()
	}
	dir, err := Open(root, "dir", Directory)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if names, err := dir.Names(8); err != nil || len(names) != 1 {
		t.Errorf("directory: got %q, %v; want one name", names, err)
	}
	if _, err := Open(root, "dir/file", Directory); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("file as a directory: got error %v, want %v", err, unix.ENOTDIR)
	}
}

// check checks the result of opening name below root, and closes the file.
func check(t *testing.T, f *File, err error, root, name, content string, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%q below %s: got error %v, want %v", name, root, err, want)
	}
	if err != nil {
		return
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != content {
		t.Errorf("%q below %s: got %q, %v, want %q", name, root, b, err, content)
	}
	if flags, err := unix.FcntlInt(f.OS().Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("%s: got flags %#x, %v, want no O_NONBLOCK, with which the runtime polls the file", f.Name(), flags, err)
	}
	if want := filepath.Join(root, name); f.Name() != want {
		t.Errorf("got name %[2]s, want %[1]s", want, f.Name())
	}
}

// TestUntouched checks that a pipe is never opened, not even briefly: that would unblock
// a waiting writer.
func TestUntouched(t *testing.T) {
	root := t.TempDir()
	pipe := filepath.Join(root, "pipe")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		if f, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
			f.Close()
		}
	}()
	for range 1000 {
		if _, err := Open(root, "pipe", Regular); !errors.Is(err, errNotRegular) {
			t.Fatalf("got error %v, want %v", err, errNotRegular)
		}
	}
	select {
	case <-opened:
		t.Error("the pipe was opened")
	default:
	}
	// Unblock the writer.
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	testenv.Receive(t, opened, "the writer is still blocked")
}
