package spool

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// open opens a spool and closes it at the end of the test.
func open(t *testing.T, dir string, limit int64) (*Spool, Found) {
	t.Helper()
	s, found, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.release() }) // the test may have closed it
	return s, found
}

// put adds a message with one sample, does all work on files, and returns the number of
// evicted entries.
func put(t *testing.T, s *Spool, message string) (lost int) {
	t.Helper()
	lost, err := tryPut(t, s, message)
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

// tryPut is like put, but returns the error of the work.
func tryPut(t *testing.T, s *Spool, message string) (lost int, err error) {
	t.Helper()
	r, err := NewRecord(Head{Samples: 1, Profiles: 2}, []byte(message))
	if err != nil {
		t.Fatal(err)
	}
	lost = len(s.Put(r))
	more, err := work(s)
	return lost + more, err
}

// work does the work on files, and returns the number of evicted entries.
func work(s *Spool) (lost int, err error) {
	for w := s.Next(); w != nil; w = s.Next() {
		err := w.Do()
		if lost += len(w.Done(err)); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// removeAll removes and returns all messages.
func removeAll(t *testing.T, s *Spool) (messages []string) {
	t.Helper()
	for len(s.All()) > 0 {
		e := s.All()[0]
		message, err := s.Reader(e)()
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(message))
		s.Remove(e)
	}
	if _, err := work(s); err != nil {
		t.Fatal(err)
	}
	return messages
}

// files returns the names of the windows and corrupt files in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*" + ending, "*" + corruptEnding} {
		all, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, all...)
	}
	return names
}

func TestOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	onDisk, _ := open(t, dir, 1<<20)
	for name, s := range map[string]*Spool{"memory": InMemory(), "directory": onDisk} {
		var want []string
		for i := range 12 {
			want = append(want, fmt.Sprint("message ", i))
			put(t, s, want[i])
		}
		if u := s.Usage(); u.Entries != 12 || u.Samples != 12 || u.Files+u.Memory == 0 {
			t.Errorf("%s: got usage %+v", name, u)
		}
		if got := removeAll(t, s); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if u := s.Usage(); u != (Usage{}) {
			t.Errorf("%s: got usage %+v after all was taken", name, u)
		}
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("got files %q after all was taken", left)
	}
}

// TestRestart finds the windows of a run that was killed, and of a run that ended normally.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, found := open(t, dir, 1<<20)
	s.Begin()
	if found != (Found{}) {
		t.Errorf("got %+v in a new spool", found)
	}
	put(t, s, "a")
	if _, _, err := Open(dir, 1<<20); err == nil {
		t.Error("two runs share a spool")
	}
	if err := s.release(); err != nil { // like SIGKILL
		t.Fatal(err)
	}
	s, found = open(t, dir, 1<<20)
	if found.Entries != 1 || found.Samples != 1 || found.Stopped.IsZero() {
		t.Errorf("got %+v after a kill, want a window and when it was", found)
	}
	// A run that fails before it measures keeps the time of the kill.
	if _, err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, again := open(t, dir, 1<<20)
	if !again.Stopped.Equal(found.Stopped) {
		t.Errorf("got %s after a start that failed, want the time of the kill, %s", again.Stopped, found.Stopped)
	}
	s.Begin()
	put(t, s, "b")
	if lost, err := s.Close(); len(lost) != 0 || err != nil {
		t.Errorf("got lost %v, error %v", lost, err)
	}
	s, found = open(t, dir, 1<<20)
	if found.Entries != 2 || !found.Stopped.IsZero() {
		t.Errorf("got %+v after an orderly end, want two windows", found)
	}
	if got := removeAll(t, s); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q, want a, b", got)
	}
}

// TestLimit evicts the oldest entry, unless it is being sent.
func TestLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	one, err := NewRecord(Head{}, []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := open(t, dir, 3*int64(len(one.data)))
	for i := range 3 {
		if lost := put(t, s, fmt.Sprint(i)); lost != 0 {
			t.Errorf("message %d pushed out %d", i, lost)
		}
	}
	e := s.All()[0]
	read := s.Reader(e)
	if lost := put(t, s, "3"); lost != 1 {
		t.Errorf("got %d pushed out, want one", lost)
	}
	if message, err := read(); string(message) != "0" || err != nil {
		t.Errorf("got %q, %v; want the oldest, which is being sent", message, err)
	}
	s.Release(e)
	if lost := put(t, s, "4"); lost != 1 {
		t.Errorf("got %d pushed out, want one", lost)
	}
	if got := removeAll(t, s); !slices.Equal(got, []string{"2", "3", "4"}) {
		t.Errorf("got %q, want 2 to 4", got)
	}
}

// TestCorrupt changes each byte of a file, and cuts it.
func TestCorrupt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := open(t, dir, 1<<20)
	put(t, s, "message")
	name := files(t, dir)[0]
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.release(); err != nil {
		t.Fatal(err)
	}
	var bad [][]byte
	for i := range good {
		changed := bytes.Clone(good)
		changed[i] ^= 0x40
		bad = append(bad, changed, good[:i])
	}
	for i, data := range append(bad, append(bytes.Clone(good), 0)) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, found := open(t, dir, 1<<20)
		if found.Corrupt != 1 || found.Entries != 0 {
			t.Errorf("%d: got %+v, want a corrupt file", i, found)
		}
		if err := s.release(); err != nil {
			t.Fatal(err)
		}
	}
	if all := files(t, dir); len(all) != 1 { // set aside under one name
		t.Errorf("got files %q, want one", all)
	}
}

// TestCorruptLater finds files that change while they wait, and keeps only a few corrupt
// ones.
func TestCorruptLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := open(t, dir, 1<<20)
	for range maxCorrupt + 3 {
		put(t, s, "message")
	}
	for _, name := range files(t, dir) {
		if err := os.WriteFile(name, []byte("nothing"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "good")
	for range maxCorrupt + 3 {
		e := s.All()[0]
		if _, err := s.Reader(e)(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("got error %v, want ErrCorrupt", err)
		}
		s.SetAside(e)
	}
	if got := removeAll(t, s); !slices.Equal(got, []string{"good"}) {
		t.Errorf("got %q, want the good one", got)
	}
	if all := files(t, dir); len(all) != maxCorrupt {
		t.Errorf("got files %q, want %d", all, maxCorrupt)
	}
}

// TestPrivate rejects directories that other users can read or replace.
func TestPrivate(t *testing.T) {
	base := t.TempDir()
	shared, link, file := filepath.Join(base, "shared"), filepath.Join(base, "link"), filepath.Join(base, "file")
	for _, err := range []error{
		os.Mkdir(shared, 0o700), os.Chmod(shared, 0o750), os.Mkdir(filepath.Join(base, "own"), 0o700),
		os.Symlink("own", link), os.WriteFile(file, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{shared, link, file, filepath.Join(base, "missing", "spool")} {
		if s, _, err := Open(dir, 1<<20); err == nil {
			t.Errorf("%s: got no error", dir)
			_ = s.release()
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(base, "own"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(filepath.Join(base, "own"), 1<<20); err == nil {
			t.Error("got no error for another user's directory")
		}
	}
}

// TestLinks checks that no link out of the directory is followed.
func TestLinks(t *testing.T) {
	dir, outside := filepath.Join(t.TempDir(), "spool"), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(outside, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := open(t, dir, 1<<20)
	if err := os.Symlink(outside, filepath.Join(dir, freshName)); err != nil {
		t.Fatal(err)
	}
	if lost, err := tryPut(t, s, "m"); err == nil || lost != 0 {
		t.Errorf("got %d lost, error %v; want an error", lost, err)
	}
	if got, err := os.ReadFile(outside); string(got) != "contents" || err != nil {
		t.Errorf("got %q, %v: a file outside has changed", got, err)
	}
}

// TestFullDisk keeps profiles in memory while the file system is full.
func TestFullDisk(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s, _ := open(t, dir, 1<<20)
	var want []string
	failed := 0
	for i := range 40 {
		noise := make([]byte, 4096)
		for j := range noise {
			noise[j] = byte((i*31 + j*j*7 + j>>3) * 2654435761 >> 11)
		}
		want = append(want, string(noise))
		lost, err := tryPut(t, s, string(noise))
		if lost != 0 {
			t.Errorf("lost %d", lost)
		}
		if err != nil {
			failed++
		}
	}
	if u := s.Usage(); failed == 0 || u.Memory == 0 || u.Files == 0 || u.Entries != 40 {
		t.Errorf("got %d errors and usage %+v, want entries in files and in memory", failed, u)
	}
	// As soon as there is room, profiles in memory are written to files.
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	if lost, err := work(s); lost != 0 || err != nil {
		t.Errorf("got %d lost, error %v", lost, err)
	}
	if u := s.Usage(); u.Memory != 0 || u.Entries != 40 {
		t.Errorf("got usage %+v, want all entries in files", u)
	}
	if got := removeAll(t, s); !slices.Equal(got, want) {
		t.Errorf("got %d other messages", len(got))
	}
}

// TestUnreadable keeps files that cannot be read at the moment.
func TestUnreadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := open(t, dir, 1<<20)
	put(t, s, "message")
	name := files(t, dir)[0]
	if err := s.release(); err != nil {
		t.Fatal(err)
	}
	unreadable := func(do func()) {
		t.Helper()
		var before unix.Rlimit
		none := unix.Rlimit{}
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		none.Max = before.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
			t.Fatal(err)
		}
		do()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
	s, _ = open(t, dir, 1<<20)
	e := s.All()[0]
	unreadable(func() {
		if _, err := s.Reader(e)(); !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrCorrupt) {
			t.Errorf("got error %v, want that no file can be opened, not a corrupt one", err)
		}
		if _, _, err := s.readHead(filepath.Base(name)); !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrCorrupt) {
			t.Errorf("got error %v, want that no file can be opened", err)
		}
	})
	if got := removeAll(t, s); !slices.Equal(got, []string{"message"}) {
		t.Errorf("got %q later, want the message", got)
	}
}

// TestRemoveWhileStored checks that no file remains of an entry that is removed while its
// file is written.
func TestRemoveWhileStored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := open(t, dir, 1<<20)
	r, err := NewRecord(Head{Samples: 1}, []byte("message"))
	if err != nil {
		t.Fatal(err)
	}
	s.Put(r)
	w := s.Next()
	if err := w.Do(); err != nil {
		t.Fatal(err)
	}
	s.Remove(s.All()[0])
	w.Done(nil)
	if _, err := work(s); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("got files %q, want none", left)
	}
}

// oldRecord is a file of fulgur 1, with 3 samples in 2 profiles and the message "message".
const oldRecord = "66756c6775725731030000000000000002000000000000000700000000000000b545c53e28b52ffd04003900006d6573736167654daac46f"

// Files of earlier versions are read, and opening a spool reads only their heads.
func TestOldFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := hex.DecodeString(oldRecord)
	if err != nil {
		t.Fatal(err)
	}
	opaque := append([]byte(nil), old[:headSize]...)
	opaque = append(opaque, "not compressed"...)
	binary.LittleEndian.PutUint32(opaque[headSize-4:], checksum(opaque))
	for i, data := range [][]byte{old, opaque} {
		if err := os.WriteFile(filepath.Join(dir, fileName(uint64(i+1))), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, found := open(t, dir, 1<<20)
	if found.Entries != 2 || found.Samples != 6 || found.Corrupt != 0 || s.All()[0].Head != (Head{Samples: 3, Profiles: 2}) {
		t.Fatalf("got %+v and head %+v, want two entries with 3 samples in 2 profiles each", found, s.All()[0].Head)
	}
	if message, err := s.Reader(s.All()[0])(); string(message) != "message" || err != nil {
		t.Errorf("got message %q, error %v", message, err)
	}
	if _, err := s.Reader(s.All()[1])(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got error %v for a message that is not compressed, want ErrCorrupt", err)
	}
}

// BenchmarkOpen opens a spool with messages of 64 MiB, about half as large when compressed.
func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "spool")
	s, _, err := Open(dir, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{})
	message := make([]byte, 4<<20)
	for range 16 {
		if _, err := random.Read(message[:len(message)/2]); err != nil {
			b.Fatal(err)
		}
		copy(message[len(message)/2:], message[:1<<16]) // and zeros
		for i := range message {
			message[i] &= 0x3f // few different bytes, as in text
		}
		r, err := NewRecord(Head{Samples: 1, Profiles: 1}, message)
		if err != nil {
			b.Fatal(err)
		}
		s.Put(r)
		if _, err := work(s); err != nil {
			b.Fatal(err)
		}
	}
	size := s.Usage().Files
	if _, err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		s, found, err := Open(dir, 1<<30)
		if err != nil || found.Entries != 16 {
			b.Fatalf("got %+v, error %v", found, err)
		}
		if _, err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
