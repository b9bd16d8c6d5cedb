package safeopen

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// readVar makes the test's binary a process that reads the file that it names, once more
// for each line of its standard input, and then ends.
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
		if err := ask(); !errors.Is(err, answer.ErrNone) {
			fmt.Fprintln(os.Stderr, "error", err)
			return 1
		}
	}
	return 0
}

// A process ends though it asked a file system that took the question and never answers.
func TestExit(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(content, make([]byte, 4<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	var cmd *exec.Cmd
	t.Cleanup(func() { // after the file system is gone, which ends all waiting
		if cmd != nil && cmd.Process != nil {
			<-ended
		}
	})
	name, mute := fusetest.MountMute(t, content)
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
	go func() { ended <- cmd.Wait() }()
	if ready != "ready\n" {
		t.Fatalf("%q, %v", ready, err)
	}
	mute()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		ended <- nil
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the process does not end")
	}
}

// Paths lead to the same with and without a helper.
func TestRemotely(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(content, []byte("served"), 0o644); err != nil {
		t.Fatal(err)
	}
	name, _ := fusetest.Mount(t, content)
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
	} {
		f, err := Open("/", tt.name, Regular)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		b := make([]byte, 10)
		n, _ := f.ReadAt(b, 2)
		if info, _ := f.Stat(); string(b[:n]) != "rved" || info.Size() != 6 || info.Mode() != 0o755 || f.on != remote {
			t.Errorf("%s: %q, %+v, %v", tt.name, b[:n], info, f.on)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	helpers.mu.Lock()
	defer helpers.mu.Unlock()
	if len(helpers.idle) == 0 || helpers.all > maxHelpers {
		t.Errorf("%d of %d helpers have nothing to do", len(helpers.idle), helpers.all)
	}
}
