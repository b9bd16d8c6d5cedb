package session

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/stacks"
)

func TestMounts(t *testing.T) {
	m := parseMounts([]byte(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 22 8:1 /sub /mnt/with\040space rw - xfs /dev/sda1 rw
short line
37 22 x:y / /bad rw - xfs /dev/sda1 rw
`))
	for _, test := range []struct {
		major, minor uint32
		path, want   string
	}{
		{254, 0, "/usr/bin/tar", "/usr/bin/tar"},
		{8, 1, "/sub/a/b", "/mnt/with space/a/b"},
		{8, 1, "/subway/a", "/subway/a"},
		{9, 9, "/a", "/a"},
	} {
		if got := m.path(stacks.File{Major: test.major, Minor: test.minor, Path: test.path}); got != test.want {
			t.Errorf("%d:%d %s is %s, want %s", test.major, test.minor, test.path, got, test.want)
		}
	}
}

func TestOwnMounts(t *testing.T) {
	m, err := readMounts()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	device := info.Sys().(*syscall.Stat_t).Dev
	f := stacks.File{Major: unix.Major(device), Minor: unix.Minor(device), Path: "/self/mountinfo"}
	if got := m.path(f); got != "/proc/self/mountinfo" {
		t.Errorf("%+v is %s", f, got)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(`36 22 8:1 /sub /mnt/with\040space rw - xfs /dev/sda1 rw`))
	f.Fuzz(func(_ *testing.T, b []byte) { parseMounts(b).path(stacks.File{Path: "/a"}) })
}
