package safeopen

import (
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Files of memfd_create(2), which programs run from and map, need no helper, although
// their file system is not in mountinfo.
func TestStandingOfMemfd(t *testing.T) {
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
	on, err := table.standing(fd, st.Dev)
	if err != nil || on != onDisk {
		t.Errorf("got %v, %v, want %v", on, err, onDisk)
	}
	if len(table.asked) > 0 {
		t.Error("a helper was used")
	}
}

// Of the file systems of other mount namespaces, only FUSE needs a helper: overlays, as in
// containers, respond or can be interrupted.
func TestClassify(t *testing.T) {
	for fsType, want := range map[int64]standing{
		unix.EXT4_SUPER_MAGIC: onDisk, unix.TMPFS_MAGIC: onDisk,
		unix.OVERLAYFS_SUPER_MAGIC: elsewhere, unix.NFS_SUPER_MAGIC: elsewhere, 0: elsewhere,
		unix.FUSE_SUPER_MAGIC: remote,
	} {
		if got := classify(fsType); got != want {
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
