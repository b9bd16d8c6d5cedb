package atomicfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// write creates path, writes text and commits.
func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Abort(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
}

// wantFiles compares a directory's files with want, by name.
func wantFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(b)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("files (-want +got):\n" + d)
	}
}

func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	f, err := Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, map[string]string{})
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := f.Abort(); err != nil {
		t.Error(err)
	}
	wantFiles(t, dir, map[string]string{"out": "new"})

	mask := syscall.Umask(0)
	syscall.Umask(mask)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.FileMode(0o644 &^ mask); info.Mode() != want {
		t.Errorf("got mode %v, want %v", info.Mode(), want)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old, and longer", 0o606)
	if os.Getuid() == 0 {
		if err := os.Chown(path, 1234, 4321); err != nil {
			t.Fatal(err)
		}
	}
	write(t, path, "new")
	wantFiles(t, dir, map[string]string{"out": "new"})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o606 {
		t.Errorf("got mode %v, want the old file's", info.Mode())
	}
	if s := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 && (s.Uid != 1234 || s.Gid != 4321) {
		t.Errorf("got owner %d:%d, want the old file's", s.Uid, s.Gid)
	}
}

// CreateNew never replaces a file, even one that was created after it.
func TestCreateNew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	begin := func() *File {
		t.Helper()
		f, err := CreateNew(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := begin(), begin()
	for f, text := range map[*File]string{first: "first", second: "second"} {
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the name was taken meanwhile: got error %v, want %v", err, fs.ErrExist)
	}
	if _, err := CreateNew(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the name is taken: got error %v, want %v", err, fs.ErrExist)
	}
	wantFiles(t, dir, map[string]string{"out": "first"})
	if err := os.Symlink("nowhere", path+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateNew(path + "-link"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a link has the name: got error %v, want %v", err, fs.ErrExist)
	}
}

func TestAbort(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old", 0o644)
	f, err := Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte("new"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Abort(); err != nil {
			t.Error(err)
		}
	}
	wantFiles(t, dir, map[string]string{"out": "old"})
}

// Some file systems cannot create a file without a name.
func TestNamedTemporary(t *testing.T) {
	dir := t.TempDir()
	open := func() *File {
		path := filepath.Join(dir, strings.Repeat("o", 255))
		f := &File{path: path, target: path}
		in, err := enter(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if err := f.openNamed(in); err != nil {
			t.Fatal(err)
		}
		f.w = bufio.NewWriter(f.f)
		if _, err := io.WriteString(f, "new"); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if err := open().Abort(); err != nil {
		t.Error(err)
	}
	wantFiles(t, dir, map[string]string{})
	if err := open().Commit(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, map[string]string{strings.Repeat("o", 255): "new"})
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b", "b/c"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir+"/a/file", "old", 0o644)
	links := map[string]string{
		"a/link":    "file",
		"a/chain":   "link",
		"a/dangle":  "../b/new",
		"b/through": "../a/abs",
		"a/abs":     dir + "/b/made",
		"a/dir":     "../b/c",
		// ".." is relative to b/c, not to a.
		"b/c/up": "../up",
		"a/loop": "loop",
	}
	for link, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ path, file string }{
		{"a/link", "a/file"},
		{"a/chain", "a/file"},
		{"a/dangle", "b/new"},
		{"b/through", "b/made"},
		{"a/dir/up", "b/up"},
	}
	for _, test := range tests {
		write(t, filepath.Join(dir, test.path), test.path)
		got, err := os.ReadFile(filepath.Join(dir, test.file))
		if err != nil || string(got) != test.path {
			t.Errorf("%s: got %q in %s, %v; want %q", test.path, got, test.file, err, test.path)
		}
	}
	for link, to := range links {
		if got, err := os.Readlink(filepath.Join(dir, link)); got != to {
			t.Errorf("link %s: got target %q, %v; want %q", link, got, err, to)
		}
	}
	if _, err := Create(t.Context(), dir+"/a/loop"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop of links: got error %v, want %v", err, syscall.ELOOP)
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "out", "new")
	wantFiles(t, ".", map[string]string{"out": "new"})
}

func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		b, _ := os.ReadFile(path)
		got <- string(b)
	}()
	write(t, path, "through")
	if text := testenv.Receive(t, got, "nobody closes the pipe"); text != "through" {
		t.Errorf("got %q, want through", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the pipe became %v, %v", info.Mode(), err)
	}
}

func TestStandardOutput(t *testing.T) {
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	path := filepath.Join(t.TempDir(), "redirected")
	var err error
	os.Stdout, err = os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Stdout.Close()
	// Unlike other outputs, standard output is appended to.
	for _, name := range []string{"-", "/dev/stdout"} {
		write(t, name, name+"\n")
	}
	if b, err := os.ReadFile(path); string(b) != "-\n/dev/stdout\n" {
		t.Errorf("got standard output %q, %v; want %q", b, err, "-\n/dev/stdout\n")
	}
}

func TestCreateErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "", 0o644)
	tests := map[string]struct {
		path    string
		want    error
		message string
	}{
		"empty":            {"", syscall.ENOENT, "no such file"},
		"directory":        {dir, syscall.EISDIR, "create " + dir + ": is a directory"},
		"trailing slash":   {dir + "/new/", syscall.EISDIR, "is a directory"},
		"no directory":     {dir + "/none/out", fs.ErrNotExist, "create " + dir + "/none/out: no such file"},
		"file as a parent": {dir + "/file/out", syscall.ENOTDIR, "not a directory"},
		"name too long":    {dir + "/" + strings.Repeat("x", 256), syscall.ENAMETOOLONG, "name too long"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Create(t.Context(), test.path)
			if !errors.Is(err, test.want) {
				t.Fatalf("got error %v, want %v", err, test.want)
			}
			if !strings.Contains(err.Error(), test.message) {
				t.Errorf("got message %q, want it to contain %q", err, test.message)
			}
		})
	}
	wantFiles(t, dir, map[string]string{"file": ""})
}

func TestUnwritable(t *testing.T) {
	testenv.Unprivileged(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old", 0o444)
	if _, err := Create(t.Context(), path); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("read-only file: got error %v, want %v", err, fs.ErrPermission)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) // so that it can be removed
	if _, err := Create(t.Context(), filepath.Join(dir, "new")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("read-only directory: got error %v, want %v", err, fs.ErrPermission)
	}
}

func TestFullDevice(t *testing.T) {
	f, err := Create(t.Context(), testenv.File(t, "/dev/full"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	err = f.Commit()
	const want = "write /dev/full: no space left on device: free some space or choose another place"
	if err == nil || err.Error() != want || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		testenv.Skip(t, "needs root: mount a small tmpfs: %v", err)
	}
	defer unix.Unmount(dir, 0)
	path := filepath.Join(dir, "out")
	put(t, path, "old", 0o644)
	f, err := Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(make([]byte, 1<<20))
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "write "+path+": no space left") {
		t.Errorf("Write: got error %v", err)
	}
	if err := f.Commit(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Commit: got error %v, want %v", err, syscall.ENOSPC)
	}
	wantFiles(t, dir, map[string]string{"out": "old"})
	write(t, path, "new")
	wantFiles(t, dir, map[string]string{"out": "new"})
}
