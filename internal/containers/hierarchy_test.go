package containers

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// In a cgroup namespace, the mount with the largest part of the hierarchy counts.
func TestCgroupsMount(t *testing.T) {
	for want, mounts := range map[string][]*procfs.Mount{
		"":      {{FSType: "cgroup", Root: "/", Mountpoint: "/v1"}, {FSType: "cgroup2", Root: "/a", Mountpoint: "/below"}, {FSType: "cgroup2", Root: "/../a", Mountpoint: "/beside"}, {FSType: "cgroup2", Root: "/..a", Mountpoint: "/odd"}},
		"/own":  {{FSType: "cgroup2", Root: "/own", Mountpoint: "/below"}, {FSType: "cgroup2", Root: "/", Mountpoint: "/own"}, {FSType: "cgroup2", Root: "/", Mountpoint: "/again"}},
		"/host": {{FSType: "cgroup2", Root: "/", Mountpoint: "/own"}, {FSType: "cgroup2", Root: "/../..", Mountpoint: "/host"}, {FSType: "cgroup2", Root: "/..", Mountpoint: "/parent"}},
	} {
		if got := NewCgroups(mounts).mount; got != want {
			t.Errorf("got mount %q, want %q", got, want)
		}
	}
}

func TestCgroups(t *testing.T) {
	testenv.Root(t)
	m, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	c := NewCgroups(m)
	if c.mount == "" {
		testenv.Skip(t, "needs cgroup v2 to be mounted")
	}
	dir, err := os.MkdirTemp(c.mount, "fulgur-test-") //nolint:usetesting // a cgroup
	if err != nil {
		testenv.Skip(t, "needs cgroup v2 to be writable: %v", err)
	}
	defer os.Remove(dir)
	for path, want := range map[string]string{
		c.mount: "/",
		dir:     "/" + filepath.Base(dir),
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Name(info.Sys().(*syscall.Stat_t).Ino); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if got := c.Name(1 << 60); got != "" {
		t.Errorf("unknown cgroup: got %q, want nothing", got)
	}
	if got := NewCgroups(nil).Name(1); got != "" {
		t.Errorf("without a hierarchy: got %q, want nothing", got)
	}
}
