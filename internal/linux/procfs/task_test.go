package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A thread is found in its process and in no other.
func TestThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, tid := os.Getpid(), unix.Gettid()
	want, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		t.Fatal(err)
	}
	if comm, err := Thread(pid, tid).Comm(); err != nil || comm+"\n" != string(want) {
		t.Errorf("got name %q, %v, want %q", comm, err, want)
	}
	if comm, err := Thread(os.Getppid(), tid).Comm(); err == nil {
		t.Errorf("thread of another process: got name %q, want an error", comm)
	}
	if tids, err := Threads(pid); err != nil || !slices.Contains(tids, tid) {
		t.Errorf("got threads %v, %v, want %d among them", tids, err, tid)
	}
	if pids, err := Processes(); err != nil || !slices.Contains(pids, pid) {
		t.Errorf("got processes %v, %v, want %d among them", pids, err, pid)
	}
}

// readFile reads files of any length, and fails like os.ReadFile.
func TestReadFile(t *testing.T) {
	for _, size := range []int{0, 1, 1023, 1024, 1025, 100_000} {
		path, want := filepath.Join(t.TempDir(), "file"), bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d bytes, %v, want the contents", size, len(got), err)
		}
	}
	for _, path := range []string{"/proc/self/none", t.TempDir()} {
		_, want := os.ReadFile(path)
		if _, err := readFile(path); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: got error %v, want %v", path, err, want)
		}
	}
}

func TestResidentMemory(t *testing.T) {
	page := int64(os.Getpagesize())
	if got, err := parseStatm([]byte("100 42 7 1 0 50 0\n")); err != nil || got != 42*page {
		t.Errorf("got %d, %v, want %d", got, err, 42*page)
	}
	for _, text := range []string{"", "1", "1 x 3"} {
		if got, err := parseStatm([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
	if got, err := Self.ResidentMemory(); err != nil || got < page {
		t.Errorf("this process: got %d bytes, %v; want a page at least", got, err)
	}
}

// FuzzNumbers parses arbitrary schedstat and statm files.
func FuzzNumbers(f *testing.F) {
	f.Add([]byte("42000 7 3\n"), uint32(42))
	f.Fuzz(func(t *testing.T, b []byte, n uint32) {
		if sched, err := ParseSched(b); err == nil && (sched.CPU < 0 || sched.Delay < 0) {
			t.Errorf("%q: got times %+v, want no negative one", b, sched)
		}
		tail := strings.ReplaceAll(string(b), "\n", " ")
		if sched, err := ParseSched(fmt.Appendf(nil, "%d %d %d", n, n, n)); err != nil || sched != (Sched{time.Duration(n), time.Duration(n), uint64(n)}) {
			t.Errorf("got %+v, %v, want %d in each field", sched, err, n)
		}
		if got, err := parseStatm(fmt.Appendf(nil, "1 %d %s", n, tail)); err != nil || got != int64(n)*int64(os.Getpagesize()) {
			t.Errorf("got %d bytes, %v, want %d pages", got, err, n)
		}
	})
}
