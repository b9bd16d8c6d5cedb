package safeopen

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// readVar makes the test binary a process that reads the named file, does so again after
// a line from standard input, and exits.
const readVar = "SAFEOPENTEST_READ"

func init() {
	if name := os.Getenv(readVar); name != "" && os.Args[0] != helperName {
		os.Exit(readUntilMute(name))
	}
}

func readUntilMute(name string) (exitCode int) {
	f, err := Open("/", name, Regular)
	if err == nil {
		_, err = f.ReadAt(make([]byte, 16), 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	for _, ask := range []func() error{
		func() error { _, err := f.ReadAt(make([]byte, 16), 1<<20); return err },
		func() error { _, err := f.Now(); return err },
		func() error { _, err := Open("/", name, Regular); return err },
		func() error { _, err := Stat(filepath.Dir(name)); return err },
	} {
		if err := ask(); !errors.Is(err, ErrNoAnswer) {
			fmt.Fprintln(os.Stderr, "error", err)
			return 1
		}
	}
	return 0
}

// A process can exit although it is waiting for a file system that never responds.
func TestExit(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	ended := make(chan error, 1)
	var cmd *exec.Cmd
	t.Cleanup(func() { // last, because the file system's end unblocks the process
		if cmd != nil && cmd.Process != nil {
			<-ended
		}
	})
	name, mute := fusetest.MountMute(t, fusetest.File(t, string(make([]byte, 4<<20))))
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), readVar+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	if ready != "ready\n" {
		t.Fatalf("got %q, %v; want ready", ready, err)
	}
	mute()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Receive(t, ended, "the process has not exited"); err != nil {
		t.Error(err)
	}
}

// Paths are resolved in the same way with and without a helper.
func TestRemotely(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	name, _ := fusetest.Mount(t, fusetest.File(t, "served"))
	root := t.TempDir()
	for link, target := range map[string]string{"absolute": name, "upward": "../../../../../.." + name, "dir": filepath.Dir(name)} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		want error
	}{
		{name, nil},
		{root + "/absolute", nil},
		{root + "/upward", nil},
		{root + "/dir/program", nil},
		{root + "/dir/../" + filepath.Base(filepath.Dir(name)) + "/program", nil},
		{root + "/dir/missing", os.ErrNotExist},
		{root + "/dir/program/below", unix.ENOTDIR},
		{root + "/dir/program/", unix.ENOTDIR},
		{root + "/dir" + strings.Repeat("/missing", unix.PathMax/8), unix.ENAMETOOLONG},
	} {
		var f *File
		err := untilAnswered(t, func() (err error) { f, err = Open("/", tt.name, Regular); return err })
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		b := make([]byte, 10)
		n := 0
		_ = untilAnswered(t, func() (err error) { n, err = f.ReadAt(b, 2); return err }) // the end of the file
		if info, _ := f.Stat(); string(b[:n]) != "rved" || info.Size() != 6 || info.Mode() != 0o755 || f.on != helped {
			t.Errorf("%s: got %q, %+v, %v; want rved from 6 bytes, through a helper", tt.name, b[:n], info, f.on)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	helpers.mu.Lock()
	defer helpers.mu.Unlock()
	if len(helpers.idle) == 0 || helpers.all > maxHelpers {
		t.Errorf("got %d idle helpers of %d, want some, and at most maxHelpers", len(helpers.idle), helpers.all)
	}
}
