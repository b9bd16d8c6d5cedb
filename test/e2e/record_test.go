package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/testenv"
)

// readRecording reads a recording and checks it.
func readRecording(t *testing.T, path string) *firefoxtest.Profile {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return firefoxtest.Check(t, b)
}

// The recording of an extraction of an uncached archive is complete from the first
// instruction to the end: its disk requests, page faults, waits and CPU time.
func TestRecordTar(t *testing.T) {
	testenv.Root(t)
	tar := testenv.Tool(t, "tar")
	dir := t.TempDir()
	archive, into := filepath.Join(dir, "a.tar"), filepath.Join(dir, "into")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	from := t.TempDir()
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(from, strconv.Itoa(i)), bytes.Repeat([]byte("fulgur "), 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := exec.Command(tar, "-cf", archive, "-C", from, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, b)
	}
	out, begin := filepath.Join(dir, "tar.json.gz"), filepath.Join(dir, "begin")
	var r result
	var p *firefoxtest.Profile
	has := func(counter string) bool {
		return slices.ContainsFunc(p.Counters, func(c firefoxtest.Counter) bool { return *c.Name == counter })
	}
	// fulgur reads the memory in use ten times per second, but on a busy machine later.
	for wait := 200 * time.Millisecond; p == nil || !has("rss") && wait < 10*time.Second; wait *= 2 {
		forgetFile(t, archive)
		_ = os.Remove(begin)
		// Only waits of a millisecond and longer have markers. A fast disk has none.
		cmd := command(t, "record", "-o", out, "--", testenv.Tool(t, "sh"), "-c",
			`until [ -e "$3" ]; do sleep 0.05; done; exec "$0" -xf "$1" -C "$2"`, tar, archive, into, begin)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, cmd)
		time.Sleep(wait)
		if err := os.WriteFile(begin, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if r = finish(t, cmd); r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		p = readRecording(t, out)
	}
	var names []string
	markers := ""
	for _, k := range p.Threads {
		names = append(names, *k.Name)
		if *k.Name == "tar" {
			markers += string(k.Markers["data"])
		}
	}
	for _, want := range []string{"tar", "Page faults"} {
		if !slices.Contains(names, want) {
			t.Errorf("no thread %q in %q\n%s", want, names, r.stderr)
		}
	}
	kinds := []string{"PageFault", "OffCpu"}
	if onDisk(t, dir) {
		kinds = append(kinds, "BlockIO")
		if !slices.Contains(names, "Block I/O, bytes") {
			t.Errorf("threads = %q, want one of bytes\n%s", names, r.stderr)
		}
	}
	for _, kind := range kinds {
		if !strings.Contains(markers, `"type":"`+kind+`"`) {
			t.Errorf("got no marker %s\n%s", kind, r.stderr)
		}
	}
	for _, want := range []string{"CPU", "Page faults", "rss"} {
		if !has(want) {
			t.Errorf("no counter %s\n%s", want, r.stderr)
		}
	}
}

// A profile without names gets them later, from the files that it identifies.
func TestNamesLater(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := t.TempDir()
	pid := victim(t, compile(t, "endless.c", "endless"))
	for _, ending := range []string{"pb.gz", "json.gz"} {
		bare, named := filepath.Join(dir, "bare."+ending), filepath.Join(dir, "named.folded")
		if r := sampleWork(t, 200*time.Millisecond, []string{pid}, "profile", "--no-symbols", "-e", "cpu-clock", "-F", "499", "-o", bare, "-p", pid); r.code != 0 || strings.Contains(r.stderr, "unnamed") {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		if b := gunzip(t, bare); bytes.Contains(b, []byte("works")) || !bytes.Contains(b, []byte("endless")) {
			t.Errorf("%s: want the file, and no names", bare)
		}
		if r := fulgur(t, "convert", "-o", named, bare); r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		b, err := os.ReadFile(named)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "main;works") {
			t.Errorf("%s: want names after conversion:\n%.1000s", bare, b)
		}
	}
}

func gunzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// forgetFile drops a file from the page cache.
func forgetFile(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// onDisk reports whether a folder is on a block device.
func onDisk(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	_, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	return err == nil
}
