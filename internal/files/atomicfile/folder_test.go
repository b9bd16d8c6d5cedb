package atomicfile

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// stranger is a user other than root.
const stranger = 65534

// sticky returns a folder like /tmp.
func sticky(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// putAs writes a file owned by the given user.
func putAs(t *testing.T, path string, owner int, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chmod(path, mode), os.Lchown(path, owner, owner)); err != nil {
		t.Fatal(err)
	}
}

// replace writes an output and commits it.
func replace(path string) error {
	f, err := Create(context.Background(), path)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, "new"); err != nil {
		return errors.Join(err, f.Abort())
	}
	return f.Commit()
}

// The output keeps the old file's owner and mode only if they were chosen by a trusted
// user, not by any user who can write to the folder.
func TestStrangersFile(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	defer unix.Umask(unix.Umask(0o022))
	for name, test := range map[string]struct {
		owner       int // of the file
		folderMode  os.FileMode
		folderOwner int
		want        int // owner of the output; its mode is the old one if the owner is
	}{
		"stranger's, in a shared folder":               {stranger, 0o1777, 0, 0},
		"stranger's, without the sticky bit":           {stranger, 0o777, 0, 0},
		"stranger's, in a folder of a group":           {stranger, 0o775, 0, 0},
		"another stranger's, in the stranger's folder": {stranger - 1, 0o1777, stranger, 0},
		"our own":                        {0, 0o1777, stranger, 0},
		"the folder's owner's":           {stranger, 0o1777, stranger, stranger},
		"stranger's, in a closed folder": {stranger, 0o755, 0, stranger},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			putAs(t, path, test.owner, 0o606)
			if err := errors.Join(os.Chown(dir, test.folderOwner, test.folderOwner), unix.Chmod(dir, uint32(test.folderMode))); err != nil {
				t.Fatal(err)
			}
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				t.Fatal(err)
			}
			mode := uint32(0o644)
			if test.want == test.owner {
				mode = 0o606
			}
			if int(st.Uid) != test.want || st.Mode&0o7777 != mode {
				t.Errorf("got user %d with mode %o, want user %d and %o", st.Uid, st.Mode&0o7777, test.want, mode)
			}
		})
	}
}

// A stranger's hard link to our file is replaced, and the file is not modified.
func TestStrangersHardLink(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := sticky(t)
	ours, path := filepath.Join(t.TempDir(), "ours"), filepath.Join(dir, "out")
	putAs(t, ours, 0, 0o600)
	if err := os.Link(ours, path); err != nil {
		t.Fatal(err)
	}
	if err := replace(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(ours); string(b) != "old" || err != nil {
		t.Errorf("the linked file: got %q, %v; want old", b, err)
	}
}

// Links and pipes that a stranger created in a shared folder are refused.
func TestStrangersLinksAndPipes(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := sticky(t)
	victim := filepath.Join(t.TempDir(), "victim")
	putAs(t, victim, 0, 0o600)
	for name, test := range map[string]struct {
		plant func(path string) error
		want  error
	}{
		"link":          {func(path string) error { return os.Symlink(victim, path) }, errStrangersLink},
		"dangling link": {func(path string) error { return os.Symlink(victim+"2", path) }, errStrangersLink},
		"pipe":          {func(path string) error { return unix.Mkfifo(path, 0o666) }, errStrangersPipe},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := errors.Join(test.plant(path), os.Lchown(path, stranger, stranger)); err != nil {
				t.Fatal(err)
			}
			if name == "pipe" { // opening it would block
				reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
			}
			// With fs.protected_symlinks, the kernel refuses links first.
			if err := replace(path); !errors.Is(err, test.want) && !errors.Is(err, unix.EACCES) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
			if b, err := os.ReadFile(victim); string(b) != "old" || err != nil {
				t.Errorf("the link's target: got %q, %v; want old", b, err)
			}
			if err := os.Lchown(path, 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := replace(path); err != nil {
				t.Errorf("in our own folder: got error %v", err)
			}
			putAs(t, victim, 0, 0o600)
		})
	}
}

// A link that a stranger created in a shared folder is not followed on the way to the output,
// even if it appears after Create.
func TestStrangersWay(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for name, test := range map[string]struct {
		owner, folderOwner int
		mode               uint32
		follows            bool
	}{
		"stranger's":                     {stranger, 0, 0o1777, false},
		"stranger's, in a closed folder": {stranger, 0, 0o755, true},
		"root's":                         {0, 0, 0o1777, true},
		"the folder's owner's":           {stranger, stranger, 0o1777, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			way := filepath.Join(dir, "way")
			if err := errors.Join(os.Chown(dir, test.folderOwner, test.folderOwner), unix.Chmod(dir, test.mode), os.Mkdir(way, 0o755)); err != nil {
				t.Fatal(err)
			}
			late, err := Create(t.Context(), way+"/late")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(way), os.Symlink(elsewhere, way), os.Lchown(way, test.owner, test.owner)); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			if test.follows {
				want = map[string]string{"late": "", "out": "new", "below": "new"}
			}
			// With fs.protected_symlinks, the kernel refuses the link first.
			refused := func(err error) bool { return errors.Is(err, errStrangersWay) || errors.Is(err, unix.EACCES) }
			inner := filepath.Join(dir, "inner") // our own link, which leads through the other one
			if err := os.Symlink("way", inner); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"late": late.Commit(), "out": replace(way + "/out"), "below": replace(inner + "/below")} {
				if test.follows && err != nil || !test.follows && !refused(err) {
					t.Errorf("%s: got error %v, want it followed: %v", what, err, test.follows)
				}
			}
			wantFiles(t, elsewhere, want)
		})
	}
}

// Create fails at once, not at the first write, if the file cannot be replaced.
func TestStrangersFileStays(t *testing.T) {
	const ask = "ATOMICFILE_OUT"
	if path := os.Getenv(ask); path != "" {
		if _, err := Create(t.Context(), path); !errors.Is(err, errStrangersFile) {
			t.Errorf("got error %v, want %v", err, errStrangersFile)
		}
		return
	}
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir, err := os.MkdirTemp("", "atomicfile-") //nolint:usetesting // the parent of t.TempDir is readable by its owner alone
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "out")
	putAs(t, path, stranger-1, 0o666)
	if err := unix.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), ask+"="+path)
	again.Dir = "/"
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
