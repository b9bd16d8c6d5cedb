package events

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Of several files that a process maps by the same name, those that cannot have probes are left out, unless
// none can.
func TestSeveralFiles(t *testing.T) {
	testenv.Root(t)
	path := filepath.Join(t.TempDir(), "library.so")
	if err := os.WriteFile(path, []byte("no ELF file"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	resolve := func(function string) (*Probe, error) {
		event, err := Parse("uprobe:" + path + ":" + function)
		if err != nil {
			t.Fatal(err)
		}
		return (&Resolver{MaxProbes: DefaultMaxProbes, PIDs: []int{os.Getpid()}}).Resolve(event, Query{})
	}
	if p, err := resolve("right"); err == nil {
		t.Errorf("got places %v of a file that is no ELF file", p.Points)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	source := path + ".c"
	if err := os.WriteFile(source, []byte("int right(int n) { return n * 0x12345; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-O1", "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := resolve("right")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Files) != 1 || len(p.Points) != 1 || len(p.LeftOut) != 1 {
		t.Errorf("got %d files, places %v, left out %v; want one of each", len(p.Files), p.Points, p.LeftOut)
	}
	for reason, out := range p.LeftOut {
		if out.Count != 1 || !strings.Contains(out.String(), path) || reason == "" {
			t.Errorf("got %s: %s, want the file", out, reason)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if p, err := resolve("wrong"); err == nil || !strings.Contains(err.Error(), "no such function") || !strings.Contains(err.Error(), "left out") {
		t.Errorf("got %v, %v, want an error that names the file as well", p, err)
	}
}
