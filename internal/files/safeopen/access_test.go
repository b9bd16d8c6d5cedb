package safeopen

import (
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Files of memfd_create(2), which programs run from and map, need no helper, although
// their file system is not in mountinfo.
func TestAccessToMemfd(t *testing.T) {
	fd, err := unix.MemfdCreate(t.Name(), unix.MFD_CLOEXEC)
	if err != nil {
		testenv.Unsupported(t, "memfd_create is refused: %v", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	table := &deviceTable{}
	on, err := table.access(fd, st.Dev)
	if err != nil || on != direct {
		t.Errorf("got %v, %v, want %v", on, err, direct)
	}
	if len(table.asked) > 0 {
		t.Error("a helper was used")
	}
}

// Of the file systems of other mount namespaces, only FUSE needs a helper: overlays, as in
// containers, respond or can be interrupted.
func TestAccessTo(t *testing.T) {
	for fsType, want := range map[int64]access{
		unix.EXT4_SUPER_MAGIC: direct, unix.TMPFS_MAGIC: direct,
		unix.OVERLAYFS_SUPER_MAGIC: timed, unix.NFS_SUPER_MAGIC: timed, 0: timed,
		unix.FUSE_SUPER_MAGIC: helped,
	} {
		if got := accessTo(fsType); got != want {
			t.Errorf("type %#x: got %v, want %v", fsType, got, want)
		}
	}
}

// FUSE is recognized also on a disk, as ntfs-3g mounts it, and with a name of its own.
func TestFUSEType(t *testing.T) {
	for name, want := range map[string]bool{
		"fuse": true, "fuse.sshfs": true, "fuseblk": true, "fuseblk.ntfs-3g": true, "virtiofs": true,
		"ext4": false, "fusectl": false, "nfs4": false, "": false,
	} {
		if got := fuseType(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}
