package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"fulgur/internal/testenv"
)

func TestParseStatus(t *testing.T) {
	uid, nspid, err := parseStatus([]byte("Name:\tx\nUid:\t1\t2\t3\t4\nNSpid:\t100\t20\t7\n"))
	if err != nil || uid != 4 || nspid != 7 {
		t.Errorf("uid %d, pid %d, error %v", uid, nspid, err)
	}
	for _, s := range []string{"", "Uid:\t1 2 3 4\n", "Uid:\tx x x x\nNSpid: 1", "Uid: 1 2 3 4\nNSpid: x", "Uid: 1\nNSpid: 1\n"} {
		if _, _, err := parseStatus([]byte(s)); err == nil {
			t.Errorf("parseStatus(%q): no error", s)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tx\nUid:\t1\t2\t3\t4\nNSpid:\t100\t20\t7\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = parseStatus(b) })
}

func TestPerfMap(t *testing.T) {
	testenv.Root(t) // to give the file away
	self := os.Getpid()
	path := perfMapPath(self)
	table := NewTable(Options{})
	if _, err := table.PerfMap(self); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no map: error %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := os.WriteFile(path, []byte("1000 10 f\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := table.PerfMap(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "1000 10 f\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if f, err := table.PerfMap(self); err == nil {
		f.Close()
		t.Error("a map that another user owns was opened")
	}
}
