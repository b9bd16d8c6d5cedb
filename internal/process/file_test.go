package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// mapped writes a file and maps it into this process, executable, until the
// test's end. It returns the mapping as /proc shows it.
func mapped(t *testing.T, path, content string) procfs.Map {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		testenv.Skip(t, "needs the right to map a file of %s as executable: %v", filepath.Dir(path), err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	maps, err := readMaps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Name == path {
			return m
		}
	}
	t.Fatalf("%s is not among the mappings", path)
	return procfs.Map{}
}

func keyOf(m procfs.Map) FileKey { return FileKey{Maj: m.Maj, Min: m.Min, Ino: m.Ino} }

// contents reads a file through its ReaderAt.
func contents(f *File) (string, error) {
	r, size, err := f.ReaderAt()
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	return string(b), err
}

func TestFileOpen(t *testing.T) {
	self := os.Getpid()
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "the right one")
	src := source{pid: self, start: m.Start, limit: m.Limit}
	nobody := source{pid: pidA, parent: pidB}

	// Each step leaves one way fewer to the file.
	check := func(step string, src source, want error) {
		t.Helper()
		got, err := contents(newFiles(10).intern(keyOf(m), m.Name, src))
		if !errors.Is(err, want) || want == nil && got != "the right one" {
			t.Errorf("%s: %q, %v, want error %v", step, got, err, want)
		}
	}
	check("by its mapping", src, nil)
	check("by the process's root", source{pid: self}, nil)
	check("by the parent's root", source{pid: pidA, parent: self}, nil)
	check("by its path", nobody, nil)

	// Keep the inode, so that its number is not used again.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	check("renamed, by its path", nobody, ErrFileGone)
	if err := os.WriteFile(path, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("replaced, by its path", nobody, ErrFileReplaced)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	check("a fifo in its place", nobody, ErrFileReplaced)
	if os.Geteuid() == 0 { // map_files is for root
		if err := os.Remove(path + ".old"); err != nil {
			t.Fatal(err)
		}
		check("deleted, by its mapping", src, nil)
	}
}

func TestFileGeneration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "the right one")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gen, ok := generation(f)
	if !ok {
		testenv.Unsupported(t, "the file system has no generations of inodes")
	}
	key := keyOf(m)
	key.Gen = gen + 1
	if _, err := contents(newFiles(10).intern(key, path, source{pid: pidA})); !errors.Is(err, ErrFileReplaced) {
		t.Errorf("another generation: error %v", err)
	}
	c := newFiles(10)
	key.Gen = gen
	byRecord, byMaps := c.intern(key, path, source{pid: pidA}), c.intern(keyOf(m), path, source{pid: pidA})
	if byRecord != byMaps {
		t.Error("a mapping without a generation is another file")
	}
	key.Gen = gen + 1
	if c.intern(key, path, source{pid: pidA}) == byRecord {
		t.Error("a mapping of another generation is the same file")
	}
}

// TestFileRewritten writes a file in place: what maps it then has another file.
func TestFileRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "the first contents")
	c := newFiles(10)
	intern := func() *File {
		c.nextRound()
		f := c.intern(keyOf(m), path, source{pid: os.Getpid(), start: m.Start, limit: m.Limit})
		c.openQueued()
		return f
	}
	first := intern()
	rewrite := func(content string, at int64) {
		t.Helper()
		err := os.WriteFile(path, []byte(content), 0o600)
		if err := errors.Join(err, os.Chtimes(path, time.Unix(at, 0), time.Unix(at, 0))); err != nil {
			t.Fatal(err)
		}
	}
	rewrite("other contents", 1)
	if intern() != first {
		t.Error("a file that is written as soon as it is mapped is looked at again at once")
	}
	first.was.since = first.was.since.Add(-rewriteRest)
	second := intern()
	if got, err := contents(second); second == first || got != "other contents" || err != nil {
		t.Errorf("the file that was written is the same (%v) and has %q, %v", second == first, got, err)
	}
	if intern() != second {
		t.Error("it is another one at each mapping")
	}
	second.was.since = second.was.since.Add(-rewriteRest)
	rewrite("OTHER CONTENTS", 2)
	if third := intern(); third == first || third == second {
		t.Error("a change that keeps the size goes unnoticed")
	}
	if c.count != 3 {
		t.Errorf("%d files are counted, want 3", c.count)
	}

	// The records of one round are about the current file.
	third := intern()
	third.was.since = third.was.since.Add(-rewriteRest)
	rewrite("more contents", 3)
	if again := c.intern(keyOf(m), path, source{pid: os.Getpid()}); again != third {
		t.Error("the file is looked at for each record of a round")
	}
}

func TestSameFile(t *testing.T) {
	key := FileKey{Maj: 8, Min: 1, Ino: 42}
	for _, tc := range []struct {
		name     string
		maj, min uint32
		ino      uint64
		want     bool
	}{
		{"the same", 8, 1, 42, true},
		{"another inode", 8, 1, 43, false},
		{"another device", 8, 2, 42, false},
		{"a made-up device, as of a btrfs subvolume", 0, 37, 42, true},
		{"a made-up device and another inode", 0, 37, 43, false},
	} {
		st := unix.Stat_t{Dev: unix.Mkdev(tc.maj, tc.min), Ino: tc.ino}
		if got := sameFile(st, key); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestFileLimit(t *testing.T) {
	dir := t.TempDir()
	const limit = 3
	c := newFiles(limit)
	var all []*File
	for _, name := range strings.Split("abcdefgh", "") {
		m := mapped(t, filepath.Join(dir, name), name)
		f := c.intern(keyOf(m), m.Name, source{pid: os.Getpid(), start: m.Start, limit: m.Limit})
		c.openQueued()
		if name == "b" {
			f.met.Store(1) // a stack met it
		}
		all = append(all, f)
	}
	check := func() {
		t.Helper()
		open := 0
		for _, f := range all {
			if f.isOpen() {
				open++
			}
		}
		if open != limit {
			t.Errorf("%d files open, want %d", open, limit)
		}
	}
	check()
	if !all[1].isOpen() {
		t.Error("the file that a stack met was closed before others")
	}
	for i, f := range all {
		if got, err := contents(f); err != nil || got != "abcdefgh"[i:i+1] {
			t.Errorf("file %d: %q, %v", i, got, err)
		}
	}
	check()
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// A file whose file system does not answer any more is given up, and is no longer
// waited for.
func TestFileNoAnswer(t *testing.T) {
	testenv.Root(t)
	const content = "of a server"
	served := filepath.Join(t.TempDir(), "served")
	if err := os.WriteFile(served, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	path, stop := fusetest.Mount(t, served)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	c := newFiles(10)
	f := c.intern(FileKey{Maj: unix.Major(st.Dev), Min: unix.Minor(st.Dev), Ino: st.Ino}, path, source{pid: os.Getpid()})
	if got, err := contents(f); err != nil || got != content {
		t.Fatalf("%q, %v", got, err)
	}
	stop()
	if err := c.close(); err != nil || f.isOpen() {
		t.Errorf("closing it: %v", err)
	}
	if got, err := contents(f); !errors.Is(err, answer.ErrNone) {
		t.Errorf("%q, %v", got, err)
	}
}

// A file system that does not answer keeps nobody waiting whose mapping has the device
// of a disk: it may be mounted over the directory of the mapped file, or be one of FUSE
// that is on a disk, as fuseblk.
func TestFileNoAnswerOverIt(t *testing.T) {
	testenv.Root(t)
	served := filepath.Join(t.TempDir(), "served")
	if err := os.WriteFile(served, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	over, stop := fusetest.Mount(t, served)
	stop()
	key := FileKey{Maj: 8, Min: 1, Ino: 42}
	done := make(chan error)
	go func() {
		c := newFiles(10)
		f := c.intern(key, over, source{pid: os.Getpid()})
		c.openQueued()
		_, err := contents(f)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, answer.ErrNone) {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the file is waited for")
	}
}

// However many file systems do not answer, and whatever others answer, a file that
// answers is opened in the same go.
func TestFilesNoAnswer(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	served := filepath.Join(dir, "served")
	if err := os.WriteFile(served, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newFiles(10)
	self := source{pid: os.Getpid()}
	var dead, alive []*File
	for i := range 3 {
		over, stop := fusetest.Mount(t, served)
		stop()
		dead = append(dead, c.intern(FileKey{Maj: 8, Min: 1, Ino: uint64(i + 1)}, over, self))
		m := mapped(t, filepath.Join(dir, fmt.Sprint(i)), "alive")
		alive = append(alive, c.intern(keyOf(m), m.Name, source{pid: os.Getpid(), start: m.Start, limit: m.Limit}))
	}
	c.openQueued()
	for i := range dead {
		if dead[i].isOpen() || !errors.Is(dead[i].err, answer.ErrNone) {
			t.Errorf("a file that does not answer: open %v, %v", dead[i].isOpen(), dead[i].err)
		}
		if !alive[i].isOpen() {
			t.Errorf("a file that answers is not open: %v", alive[i].err)
		}
	}
}

func TestFilesSweep(t *testing.T) {
	c := newFiles(10)
	src := source{pid: pidA}
	for ino := range uint64(5000) {
		f := c.intern(FileKey{Maj: 250, Ino: ino + 1}, "/gone", src)
		if ino == 1 {
			f.met.Store(1)
		}
	}
	mapped := c.intern(FileKey{Maj: 250, Ino: 1}, "/gone", src)
	sweep := func() { c.sweep(func(mark func(*File)) { mark(mapped) }) }
	sweep()
	if c.count != 2 || len(c.byInode) != 2 {
		t.Errorf("%d files are left, want the mapped and the used one", c.count)
	}
	// A stack of two periods ago may still be looked at, one of three not.
	for _, want := range []int{2, 2, 1} {
		c.period.Add(1)
		c.sweptAt = time.Now().Add(-sweepEvery) // there is no need otherwise
		sweep()
		if c.count != want {
			t.Errorf("%d files are left in period %d, want %d", c.count, c.period.Load(), want)
		}
	}
}

// What belongs to a file is looked for where a process sees it, even once the
// process is gone.
func TestFileRoot(t *testing.T) {
	const nobody = 1 << 30 // above all process numbers
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "code")
	other := keyOf(m)
	other.Ino++
	own := procfs.Path(os.Getpid(), "root")
	for _, test := range []struct {
		name string
		src  source
		key  FileKey
		want string
	}{
		{"alive", source{pid: os.Getpid(), parent: nobody}, keyOf(m), own},
		{"parent alive", source{pid: nobody, parent: os.Getpid()}, keyOf(m), own},
		{"gone", source{pid: nobody, parent: nobody}, keyOf(m), "/"},
		{"gone and replaced", source{pid: nobody}, other, ""},
	} {
		f := &File{Key: test.key, Path: path, src: test.src, cache: newFiles(1)}
		if got := f.Root(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
