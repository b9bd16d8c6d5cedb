package mounts

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/procfs"
)

func TestMounts(t *testing.T) {
	m := List(procfs.ParseMounts([]byte(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 22 8:1 /sub /mnt/with\040space rw - xfs /dev/sda1 rw
short line
37 22 x:y / /bad rw - xfs /dev/sda1 rw
`)))
	for _, test := range []struct {
		major, minor uint32
		path, want   string
	}{
		{254, 0, "/usr/bin/tar", "/usr/bin/tar"},
		{8, 1, "/sub/a/b", "/mnt/with space/a/b"},
		{8, 1, "/subway/a", "/subway/a"},
		{9, 9, "/a", "/a"},
	} {
		if got := m.Path(stacks.File{Major: test.major, Minor: test.minor, Path: test.path}); got != test.want {
			t.Errorf("%d:%d %s: got %s, want %s", test.major, test.minor, test.path, got, test.want)
		}
	}
}

// Files without a path also have names.
func TestPathless(t *testing.T) {
	for want, f := range map[string]stacks.File{
		"inode 7 of 4095:12345": {Major: 4095, Minor: 12345, Inode: 7},
		"/dev/4095:12345":       {Major: 4095, Minor: 12345, Inode: 7, Device: true},
	} {
		if got := List(nil).Path(f); got != want {
			t.Errorf("%+v: got %q, want %q", f, got, want)
		}
	}
}

func TestOwnMounts(t *testing.T) {
	mounts, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	device := info.Sys().(*syscall.Stat_t).Dev
	f := stacks.File{Major: unix.Major(device), Minor: unix.Minor(device), Path: "/self/mountinfo"}
	if got := List(mounts).Path(f); got != "/proc/self/mountinfo" {
		t.Errorf("%+v: got %s, want /proc/self/mountinfo", f, got)
	}
}
