package procfs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseMounts(t *testing.T) {
	got := ParseMounts([]byte("22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n" +
		"short line\n" +
		"30 23 0:26 / /no/dash rw cgroup2 cgroup2 rw\n" +
		"37 22 0:32 / /cut rw -\n" +
		strings.Repeat("x", 1<<17) + "\n" +
		"36 22 8:1 /sub /mnt/with\\040space\u00a0and\\134040 rw - fuse.sshfs a\\040b rw,user_id=0"))
	want := []*Mount{
		{
			ID: 22, Parent: 1, Major: 254, Root: "/", Mountpoint: "/", Options: "rw,relatime", Optional: "shared:1 master:2",
			FSType: "ext4", Source: "/dev/vda", VFSOptions: "rw",
		},
		{
			ID: 36, Parent: 22, Major: 8, Minor: 1, Root: "/sub", Mountpoint: "/mnt/with space\u00a0and\\040", Options: "rw",
			FSType: "fuse.sshfs", Source: "a b", VFSOptions: "rw,user_id=0",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("(-want +got):\n" + d)
	}
}

func TestOwnMounts(t *testing.T) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/mountinfo", &st); err != nil {
		t.Fatal(err)
	}
	mounts, err := Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.Mountpoint == "/proc" && m.Root == "/" && unix.Mkdev(uint32(m.Major), uint32(m.Minor)) == st.Dev {
			return
		}
	}
	t.Error("got no mount at /proc")
}

// FuzzParseMounts finds a mount at an arbitrary path after arbitrary lines.
func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(`36 22 8:1 /sub /mnt/with\040space rw - xfs /dev/sda1 rw`), "mnt/with space")
	f.Add([]byte("22 27 0:21 / /proc rw,relatime shared:1 - proc proc rw,hidepid=2\n"), "/sys/kernel/my\u00a0tracing\\")
	f.Fuzz(func(t *testing.T, others []byte, point string) {
		const maxPath = 4096 // PATH_MAX
		point = point[:min(len(point), maxPath)]
		// See the kernel's show_mountinfo.
		escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`, "#", `\043`).Replace(point)
		before := ParseMounts(others)
		got := ParseMounts(fmt.Appendf(bytes.Clone(others), "\n36 22 4095:1 / /%s rw - xfs /dev/sda1 rw\n", escaped))
		if len(got) != len(before)+1 {
			t.Fatalf("got %d mounts, want %d", len(got), len(before)+1)
		}
		if m := got[len(got)-1]; m.Mountpoint != "/"+point || m.Major != 4095 || m.Minor != 1 || m.FSType != "xfs" {
			t.Errorf("got %+v, want one at %q", m, "/"+point)
		}
	})
}
