package boltprofile

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// A process's program may be on a file system that does not respond.
func TestChooseNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	content, err := os.ReadFile(testenv.Tool(t, "cat"))
	if err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	t.Cleanup(func() { // last, because the process may block until the file system is gone
		if cmd != nil {
			_ = cmd.Wait() // the error is about the kill
		}
	})
	program, stop := fusetest.Mount(t, fusetest.File(t, string(content)))
	cmd = exec.Command(program)
	cmd.Args[0] = "cat" // busybox chooses the program by argv[0]
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() }) // makes cat exit
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Once it has copied a byte, it has read all pages that it needs.
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
		if !errors.Is(err, safeopen.ErrNoAnswer) {
			t.Errorf("got error %v, want %v", err, safeopen.ErrNoAnswer)
		}
	case <-time.After(time.Minute):
		t.Fatal("the search blocks on the program")
	}
}
