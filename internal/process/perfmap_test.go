package process

import (
	"bytes"
	"fmt"
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

// FuzzParseStatus finds the numbers behind foreign lines.
func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tx\nGid:\t1\t2\t3\t4"), uint32(4), uint16(7))
	f.Add([]byte("Uid:\t1\t2\t3\t4\nNSpid:\t100\t20\t7\n"), uint32(0), uint16(1))
	f.Fuzz(func(t *testing.T, others []byte, uid uint32, pid uint16) {
		_, _, err := parseStatus(others)
		has := func(key string) bool { return bytes.Contains(others, []byte(key)) }
		if err == nil && (!has("Uid:") || !has("NSpid:")) {
			t.Errorf("no error for %q", others)
		}
		if has("Uid:") || has("NSpid:") {
			return // the first ones count
		}
		gotUID, gotPID, err := parseStatus(fmt.Appendf(others, "\nUid:\t1\t2\t3\t%d\nNSpid:\t9\t%d\n", uid, pid))
		if err != nil || gotUID != uid || gotPID != int(pid) {
			t.Errorf("uid %d, pid %d (%v); want %d, %d", gotUID, gotPID, err, uid, pid)
		}
	})
}

func TestOpenPerfMap(t *testing.T) {
	testenv.Root(t) // to give the file away
	path := perfMapPath(os.Getpid())
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := openPerfMap(nil, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if f, err := openPerfMap(nil, os.Getpid()); err == nil {
		f.Close()
		t.Error("a map that another user owns was opened")
	}
}
