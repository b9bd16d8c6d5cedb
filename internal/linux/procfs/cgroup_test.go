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

// TestSmallestMemoryLimit finds the lowest limit among a cgroup and its ancestors.
func TestSmallestMemoryLimit(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		v2 + "/a/memory.max":                  "4096\n",
		v2 + "/a/b/memory.max":                "max\n",
		v2 + "/a/c/memory.max":                "8192\n",
		v2 + "/d/memory.max":                  "max\n",
		v2 + "/memory.max":                    "1048576\n", // a container's view
		v1 + "/memory.limit_in_bytes":         "9223372036854771712\n",
		v1 + "/a/memory.limit_in_bytes":       "2048\n",
		v1 + "/broken/memory.limit_in_bytes":  "?\n",
		v1 + "/none/of/memory.limit_in_bytes": "-1\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		cgroups, root string
		want          MemoryLimit
	}{
		"none":             {"0::/d", "/x", MemoryLimit{1 << 20, v2 + "/memory.max"}},
		"of an ancestor":   {"0::/a/b", "/", MemoryLimit{4096, v2 + "/a/memory.max"}},
		"lower above":      {"0::/a/c", "/", MemoryLimit{4096, v2 + "/a/memory.max"}},
		"gone":             {"0::/a/gone", "/", MemoryLimit{4096, v2 + "/a/memory.max"}},
		"below the mount":  {"0::/pod/a/b", "/pod", MemoryLimit{4096, v2 + "/a/memory.max"}},
		"above the mount":  {"0::/../other", "/", MemoryLimit{1 << 20, v2 + "/memory.max"}},
		"version 1":        {"3:cpu:/\n2:memory:/a/x\n", "/", MemoryLimit{2048, v1 + "/a/memory.limit_in_bytes"}},
		"both":             {"2:cpu,memory:/a\n0::/a\n", "/", MemoryLimit{2048, v1 + "/a/memory.limit_in_bytes"}},
		"other controller": {"2:cpu:/a\n", "/", MemoryLimit{}},
		"no limit":         {"2:memory:/none/of\n", "/", MemoryLimit{}},
		"broken":           {"2:memory:/broken\n", "/", MemoryLimit{}},
	} {
		memberships, err := ParseMemberships([]byte(test.cgroups))
		if err != nil {
			t.Fatal(err)
		}
		mounts := []*Mount{
			{FSType: "tmpfs", Mountpoint: "/"}, {FSType: "cgroup", VFSOptions: "rw,cpu", Mountpoint: v2, Root: "/"},
			{FSType: "cgroup", VFSOptions: "rw,memory", Mountpoint: v1, Root: test.root}, {FSType: "cgroup2", Mountpoint: v2, Root: test.root},
		}
		if got := SmallestMemoryLimit(memberships, mounts); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
