package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCgroupProcesses(t *testing.T) {
	root := t.TempDir()
	for dir, procs := range map[string]string{".": "1\n0\n", "a": "2\n", "a/b": "3\n4\n", "threaded": ""} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == "threaded" {
			continue // not readable
		}
		if err := os.WriteFile(filepath.Join(root, dir, "cgroup.procs"), []byte(procs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pids, err := CgroupProcesses(root)
	slices.Sort(pids)
	if err != nil || !slices.Equal(pids, []int{1, 2, 3, 4}) {
		t.Errorf("got %v, %v; want 1 to 4", pids, err)
	}
	if err := os.WriteFile(filepath.Join(root, "a", "cgroup.procs"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if pids, err := CgroupProcesses(root); err == nil {
		t.Errorf("malformed: got %v, want an error", pids)
	}
	if pids, err := CgroupProcesses(filepath.Join(root, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing group: got %v, %v, want %v", pids, err, fs.ErrNotExist)
	}
}

// FuzzParseCgroupProcs parses arbitrary bytes, and a list of IDs.
func FuzzParseCgroupProcs(f *testing.F) {
	f.Add([]byte("1\n0\n4194303\n"), uint16(1), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, first, second uint16) {
		pids, err := parseCgroupProcs(b)
		if err != nil && pids != nil || slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 }) {
			t.Errorf("%q: got %v, %v; want positive IDs or an error", b, pids, err)
		}
		want := slices.DeleteFunc([]int{int(first), int(second)}, func(pid int) bool { return pid == 0 })
		got, err := parseCgroupProcs(fmt.Appendf(nil, "%d\n%d\n", first, second))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
}
