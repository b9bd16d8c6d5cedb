package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// mapped writes a file and maps it as executable into this process until the test ends.
// It returns the mapping from /proc.
func mapped(t *testing.T, path, content string) procfs.Map {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return mapExisting(t, path)
}

// mapExisting maps a file.
func mapExisting(t *testing.T, path string) procfs.Map {
	t.Helper()
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
	maps := mapsOf(t, os.Getpid())
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

// A file that is opened before it is mapped has the path of its mappings.
func TestOpenPath(t *testing.T) {
	dir := t.TempDir()
	m := mapped(t, filepath.Join(dir, "lib.so.1.2"), "code")
	for _, link := range [][2]string{{"lib.so.1.2", "lib.so.1"}, {".", "here"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"lib.so.1.2", "lib.so.1", "here/lib.so.1"} {
		f, err := NewTable(Options{}).Open(os.Getpid(), filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if f.Path != m.Name {
			t.Errorf("%s: got path %s, want the mapping's %s", path, f.Path, m.Name)
		}
	}
}

// A process that maps very many deleted files of one name does not use up fulgur's descriptors.
func TestOpenPathMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	for n := range maxMappedAs + 1 {
		mapped(t, path, "code")
		if n == 0 {
			files, _, err := OpenPath(os.Getpid(), path)
			if err != nil || len(files) != 1 {
				t.Errorf("got %d files, %v, want the mapped one", len(files), err)
			}
			versions{files: files}.Close()
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if files, _, err := OpenPath(os.Getpid(), path); err == nil || !strings.Contains(err.Error(), "files of that name") {
		t.Errorf("got %d files, %v, want an error for too many", len(files), err)
		versions{files: files}.Close()
	}
}

// Deleted programs are files, other deleted files are generated code.
func TestDeletedKind(t *testing.T) {
	head := func(magic string, at byte, more string) string {
		return magic + strings.Repeat("\x00", 60-len(magic)) + string(at) + "\x00\x00\x00" + more
	}
	for name, test := range map[string]struct {
		content string
		want    Kind
	}{
		"ELF":            {head("\x7fELF", 0, ""), KindFile},
		"PE":             {head("MZ", 66, "..PE\x00\x00"), KindFile},
		"DOS":            {head("MZ", 66, "..NE\x00\x00"), KindAnon},
		"beyond the end": {head("MZ", 127, "PE\x00\x00"), KindAnon},
		"short":          {"MZ", KindAnon},
		"generated code": {head("\x55\x48\x89\xe5", 0, ""), KindAnon},
		"nothing":        {"", KindAnon},
	} {
		path := filepath.Join(t.TempDir(), "code")
		m := mapped(t, path, test.content)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		table := NewTable(Options{})
		got := table.Resolve(os.Getpid(), m.Start+1, monotonic.Now())
		if got.Kind != test.want || got.Kind == KindFile && got.File.Path != path {
			t.Errorf("%s: got %+v, want kind %v", name, got, test.want)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If one of the files that a process maps by a name cannot be opened, the others are.
func TestOpenPathPartly(t *testing.T) {
	testenv.Root(t)
	path, stop := fusetest.Mount(t, fusetest.File(t, "old"))
	m := mapExisting(t, path)
	over := filepath.Dir(path)
	if err := unix.Mount("tmpfs", over, "tmpfs", unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(over, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	stop()
	files, _, err := OpenPath(os.Getpid(), path)
	if err == nil {
		t.Errorf("got %d files, want an error: none can be opened", len(files))
	}
	versions{files: files}.Close()
	for _, name := range []string{"spare", "spare2", filepath.Base(path)} { // with another inode
		if err := os.WriteFile(filepath.Join(over, name), []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, unopened, err := OpenPath(os.Getpid(), path)
	if err != nil || len(files) != 1 || len(unopened) != 1 {
		t.Fatalf("got %d files, %v not opened, %v; want one of each", len(files), unopened, err)
	}
	defer versions{files: files}.Close()
	if got, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", files[0].OS().Fd())); string(got) != "new" {
		t.Errorf("got %q, %v, want the new file", got, err)
	}
	if want := fmt.Sprintf("maps at 0x%x", m.Start); !strings.Contains(unopened[0].Name, want) || unopened[0].Err == nil {
		t.Errorf("got %v, want %q", unopened[0], want)
	}
}

func TestFileOpen(t *testing.T) {
	self := os.Getpid()
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "the right one")
	src := origin{pid: self, start: m.Start, limit: m.Limit}
	gone := origin{pid: pidA, parent: pidB}

	// Each step makes one more way to open the file fail.
	check := func(step string, src origin, want error) {
		t.Helper()
		got, err := contents(newFiles(10).intern(keyOf(m), m.Name, src))
		if !errors.Is(err, want) || want == nil && got != "the right one" {
			t.Errorf("%s: got %q, %v, want error %v", step, got, err, want)
		}
	}
	check("by its mapping", src, nil)
	check("by the process's root", origin{pid: self}, nil)
	check("by the parent's root", origin{pid: pidA, parent: self}, nil)
	check("by its path", gone, nil)

	// Keep the inode, so that its number is not reused.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	check("renamed, by its path", gone, ErrFileGone)
	if err := os.WriteFile(path, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("replaced, by its path", gone, ErrFileReplaced)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	check("a fifo in its place", gone, ErrFileReplaced)
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
	if _, err := contents(newFiles(10).intern(key, path, origin{pid: pidA})); !errors.Is(err, ErrFileReplaced) {
		t.Errorf("another generation: got error %v, want %v", err, ErrFileReplaced)
	}
	c := newFiles(10)
	key.Gen = gen
	byRecord, byMaps := c.intern(key, path, origin{pid: pidA}), c.intern(keyOf(m), path, origin{pid: pidA})
	if byRecord != byMaps {
		t.Error("a mapping without a generation has another file")
	}
	key.Gen = gen + 1
	if c.intern(key, path, origin{pid: pidA}) == byRecord {
		t.Error("a mapping of another generation has the same file")
	}
}

// TestFileRewritten overwrites a file in place: later mappings have another [File].
func TestFileRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "the first contents")
	c := newFiles(10)
	intern := func() *File {
		c.nextRound()
		f := c.intern(keyOf(m), path, origin{pid: os.Getpid(), start: m.Start, limit: m.Limit})
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
		t.Error("got another file right after the first mapping, want no check yet")
	}
	first.initial.since = first.initial.since.Add(-versionInterval)
	second := intern()
	if got, err := contents(second); second == first || got != "other contents" || err != nil {
		t.Errorf("overwritten file: got the same file: %v, content %q, %v; want another with the new content", second == first, got, err)
	}
	if intern() != second {
		t.Error("got another file for an unchanged one")
	}
	second.initial.since = second.initial.since.Add(-versionInterval)
	rewrite("OTHER CONTENTS", 2)
	if third := intern(); third == first || third == second {
		t.Error("got the same file after a change that keeps the size")
	}
	if c.count != 3 {
		t.Errorf("got %d files, want 3", c.count)
	}

	// All records of a round refer to the current file.
	third := intern()
	third.initial.since = third.initial.since.Add(-versionInterval)
	rewrite("more contents", 3)
	if again := c.intern(keyOf(m), path, origin{pid: os.Getpid()}); again != third {
		t.Error("got another file within a round")
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
		{"a made-up device, as for a btrfs subvolume", 0, 37, 42, true},
		{"a made-up device and another inode", 0, 37, 43, false},
	} {
		st := unix.Stat_t{Dev: unix.Mkdev(tc.maj, tc.min), Ino: tc.ino}
		if got := sameFile(st, key); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
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
		f := c.intern(keyOf(m), m.Name, origin{pid: os.Getpid(), start: m.Start, limit: m.Limit})
		c.openQueued()
		if name == "b" {
			f.lastUsed.Store(1) // used by a stack
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
			t.Errorf("got %d open files, want %d", open, limit)
		}
	}
	check()
	if !all[1].isOpen() {
		t.Error("a file used by a stack was closed before others")
	}
	for i, f := range all {
		if got, err := contents(f); err != nil || got != "abcdefgh"[i:i+1] {
			t.Errorf("file %d: got %q, %v; want %q", i, got, err, "abcdefgh"[i:i+1])
		}
	}
	check()
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// If a file's file system hangs, the file is given up and no longer blocks the table.
func TestFileNoAnswer(t *testing.T) {
	testenv.Root(t)
	const content = "on a server"
	path, stop := fusetest.Mount(t, fusetest.File(t, content))
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	c := newFiles(10)
	f := c.intern(FileKey{Maj: unix.Major(st.Dev), Min: unix.Minor(st.Dev), Ino: st.Ino}, path, origin{pid: os.Getpid()})
	var got string
	err := fusetest.UntilAnswered(t, safeopen.ErrNoAnswer, func() (err error) { got, err = contents(f); return err })
	if err != nil || got != content {
		t.Fatalf("got %q, %v; want %q", got, err, content)
	}
	stop()
	if err := c.close(); err != nil || f.isOpen() {
		t.Errorf("close: got %v, still open: %v; want nil, false", err, f.isOpen())
	}
	if got, err := contents(f); !errors.Is(err, safeopen.ErrNoAnswer) {
		t.Errorf("got %q, %v, want %v", got, err, safeopen.ErrNoAnswer)
	}
}

// A file system that hangs does not block the table, even if the mapping's device is a disk:
// the file system may be mounted over the directory of the mapped file, or be a FUSE file
// system on a disk, such as fuseblk.
func TestFileHungMountOverDisk(t *testing.T) {
	testenv.Root(t)
	over, stop := fusetest.Mount(t, fusetest.File(t, ""))
	stop()
	key := FileKey{Maj: 8, Min: 1, Ino: 42}
	done := make(chan error, 1)
	go func() {
		c := newFiles(10)
		f := c.intern(key, over, origin{pid: os.Getpid()})
		c.openQueued()
		_, err := contents(f)
		done <- err
	}()
	if err := testenv.Receive(t, done, "opening the file blocks"); !errors.Is(err, safeopen.ErrNoAnswer) {
		t.Errorf("got error %v, want ErrNoAnswer", err)
	}
}

// A file on a file system that responds is opened in the same round, no matter how many other
// file systems hang. Once these have used up the budget, it is refused if its process's
// mappings are locked for a millisecond, as they are if the thread that changes them waits for
// a CPU. So the test repeats the round until that does not happen.
func TestFilesNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.Await(t, func() bool { return openedAmongHanging(t) }, func() string { return "no round opened all files that respond" })
}

// openedAmongHanging opens files on a file system that responds, between files on file systems
// that hang. It reports whether the former are all open after the round.
func openedAmongHanging(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	served := fusetest.File(t, "")
	c := newFiles(10)
	self := origin{pid: os.Getpid()}
	var dead, alive []*File
	for i := range 3 {
		over, stop := fusetest.Mount(t, served)
		stop()
		dead = append(dead, c.intern(FileKey{Maj: 8, Min: 1, Ino: uint64(i + 1)}, over, self))
		m := mapped(t, filepath.Join(dir, fmt.Sprint(i)), "alive")
		alive = append(alive, c.intern(keyOf(m), m.Name, origin{pid: os.Getpid(), start: m.Start, limit: m.Limit}))
	}
	c.openQueued()
	all := true
	for i := range dead {
		if dead[i].isOpen() || !errors.Is(dead[i].err, safeopen.ErrNoAnswer) {
			t.Errorf("file that hangs: got open %v, %v; want false, ErrNoAnswer", dead[i].isOpen(), dead[i].err)
		}
		all = all && alive[i].isOpen()
	}
	return all
}

func TestFilesSweep(t *testing.T) {
	c := newFiles(10)
	src := origin{pid: pidA}
	for ino := range uint64(5000) {
		f := c.intern(FileKey{Maj: 250, Ino: ino + 1}, "/gone", src)
		if ino == 1 {
			f.lastUsed.Store(1)
		}
	}
	mapped := c.intern(FileKey{Maj: 250, Ino: 1}, "/gone", src)
	sweep := func() { c.sweep(func(mark func(*File)) { mark(mapped) }) }
	sweep()
	if c.count != 2 || len(c.byInode) != 2 {
		t.Errorf("got %d files left, want the mapped and the used one", c.count)
	}
	// A stack from two periods ago may still need its file, one from three periods ago
	// does not.
	for _, want := range []int{2, 2, 1} {
		c.period.Add(1)
		c.sweptAt = time.Now().Add(-sweepEvery) // sweeps are limited in rate
		sweep()
		if c.count != want {
			t.Errorf("period %[2]d: got %[1]d files left, want %[3]d", c.count, c.period.Load(), want)
		}
	}
}

// Root is the root of the process that maps the file, as long as a process with it
// exists.
func TestFileRoot(t *testing.T) {
	const unused = 1 << 30 // above the limit for PIDs
	path := filepath.Join(t.TempDir(), "code")
	m := mapped(t, path, "code")
	other := keyOf(m)
	other.Ino++
	for _, test := range []struct {
		name string
		src  origin
		key  FileKey
		want string
	}{
		{"alive", origin{pid: os.Getpid(), parent: unused}, keyOf(m), "/"},
		{"parent alive", origin{pid: unused, parent: os.Getpid()}, keyOf(m), "/"},
		{"gone", origin{pid: unused, parent: unused}, keyOf(m), "/"},
		{"gone and replaced", origin{pid: unused}, other, ""},
	} {
		f := &File{Key: test.key, Path: path, src: test.src, cache: newFiles(1)}
		if got := f.Root(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// The root of a process in a mount namespace of its own is no other directory, even if it has the inode
// of ours.
func TestFileRootMounts(t *testing.T) {
	testenv.Root(t)
	cmd := testenv.Command(t, "sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "code")
	f := &File{Key: keyOf(mapped(t, path, "code")), Path: path, src: origin{pid: cmd.Process.Pid}, cache: newFiles(1)}
	if got, want := f.Root(), procfs.Path(cmd.Process.Pid, "root"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
