package mounts

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/stacks"
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
		if got := m.Path(stacks.File{Major: test.major, Minor: test.minor, Path: test.path}); got != test.want {
			t.Errorf("%d:%d %s is %s, want %s", test.major, test.minor, test.path, got, test.want)
		}
	}
}

func TestMountKinds(t *testing.T) {
	m := parseMounts([]byte(`22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
36 22 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
37 22 0:32 / /cut rw -
`))
	var kinds []string
	for _, at := range m {
		kinds = append(kinds, at.kind)
	}
	if want := []string{"ext4", "cgroup2", ""}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
}

// What has no path is named, too.
func TestPathless(t *testing.T) {
	for want, f := range map[string]stacks.File{
		"inode 7 of 4095:12345": {Major: 4095, Minor: 12345, Inode: 7},
		"/dev/4095:12345":       {Major: 4095, Minor: 12345, Inode: 7, Device: true},
	} {
		if got := List(nil).Path(f); got != want {
			t.Errorf("%+v is %q, want %q", f, got, want)
		}
	}
}

func TestOwnMounts(t *testing.T) {
	m, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	device := info.Sys().(*syscall.Stat_t).Dev
	f := stacks.File{Major: unix.Major(device), Minor: unix.Minor(device), Path: "/self/mountinfo"}
	if got := m.Path(f); got != "/proc/self/mountinfo" {
		t.Errorf("%+v is %s", f, got)
	}
}

// FuzzParseMounts names a file of a file system that is mounted at a path which
// holds anything, behind foreign lines.
func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(`36 22 8:1 /sub /mnt/with\040space rw - xfs /dev/sda1 rw`), "mnt/with space")
	f.Fuzz(func(t *testing.T, others []byte, point string) {
		if got := parseMounts(others).Path(stacks.File{Path: "/a"}); !strings.HasSuffix(got, "a") {
			t.Errorf("/a is %q", got)
		}
		var escaped strings.Builder
		for _, b := range []byte("/" + point) {
			if b <= ' ' || b == '\\' {
				fmt.Fprintf(&escaped, `\%03o`, b)
			} else {
				escaped.WriteByte(b)
			}
		}
		line := fmt.Sprintf("\n36 22 4095:1 / %s rw - xfs /dev/sda1 rw\n", &escaped)
		if bytes.Contains(others, []byte("4095:1")) {
			return
		}
		want := path.Join("/"+point, "a")
		if got := parseMounts(append(others, line...)).Path(stacks.File{Major: 4095, Minor: 1, Path: "/a"}); got != want {
			t.Errorf("/a is %q, want %q", got, want)
		}
	})
}
