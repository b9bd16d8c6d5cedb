package branches

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/bolt"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/usage"
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
	done := make(chan error, 1)
	go func() {
		bs := &binaries{collector: bolt.NewCollector(bolt.Options{})}
		done <- errors.Join(bs.choose("", []int{cmd.Process.Pid}), bs.close())
	}()
	if err := testenv.Receive(t, done, "the search blocks on the program"); !errors.Is(err, safeopen.ErrNoAnswer) {
		t.Errorf("got error %v, want %v", err, safeopen.ErrNoAnswer)
	}
}

// A profile of the running kernel is never made with the symbols of another one.
func TestChooseOtherKernel(t *testing.T) {
	testenv.AnyKernel(t)
	dir := t.TempDir()
	source, vmlinux := filepath.Join(dir, "a.c"), filepath.Join(dir, "vmlinux")
	if err := os.WriteFile(source, []byte("void _text(void) {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(testenv.Tool(t, "gcc"), "-nostdlib", "-static", "-fno-pie", "-no-pie", "-Wl,--build-id,-e,_text,-Ttext-segment=0xffffffff81000000", "-o", vmlinux, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	bs := &binaries{collector: bolt.NewCollector(bolt.Options{})}
	err := bs.chooseKernel(t.Context(), &Options{ProfileOptions: ProfileOptions{Binary: vmlinux, Kernel: true, Samples: "text"}})
	if err = errors.Join(err, bs.close()); err == nil || !strings.Contains(err.Error(), "is not the running kernel") {
		t.Errorf("got %v, want an error about another kernel", err)
	}
}

// Only the processor records branches in the kernel.
func TestKernelBranches(t *testing.T) {
	for _, branches := range []string{branchesCounting, branchesStepping} {
		o := Options{ProfileOptions: ProfileOptions{Kernel: true, Samples: "text"}, Branches: branches}
		if err := o.check(); !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), "branches in the kernel") {
			t.Errorf("%s: got %v, want a usage error", branches, err)
		}
	}
}
