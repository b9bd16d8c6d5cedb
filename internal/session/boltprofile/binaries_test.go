package boltprofile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/files/answer"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// The program of a process may lie in a file system that does not answer.
func TestChooseNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content, err := os.ReadFile(testenv.Tool(t, "cat"))
	if err != nil {
		t.Fatal(err)
	}
	served := filepath.Join(t.TempDir(), "cat")
	if err := os.WriteFile(served, content, 0o700); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	t.Cleanup(func() { // after the file system is gone, which may hold the process until then
		if cmd != nil {
			_ = cmd.Wait() // in vain
		}
	})
	program, stop := fusetest.Mount(t, served)
	cmd = exec.Command(program)
	cmd.Args[0] = "cat" // busybox wants to know
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() }) // ends it
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// When it has copied a byte, all of it that is needed has been read.
	if _, err := in.Write([]byte{'.'}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	done := make(chan error)
	go func() {
		bs := &binaries{collector: bolt.NewCollector(bolt.Options{})}
		done <- errors.Join(bs.choose("", []int{cmd.Process.Pid}), bs.close())
	}()
	select {
	case err := <-done:
		if !errors.Is(err, answer.ErrNone) {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the program is waited for")
	}
}
