package e2e

import (
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// Stacks in a library are whole even if fulgur gets no CPU time for a while after a program
// has mapped it.
func TestMappedWhileStopped(t *testing.T) {
	testenv.Root(t)
	flags := []string{"-O2", "-fomit-frame-pointer"}
	library := compile(t, "library.c", "libwork.so", append([]string{"-shared", "-fPIC", "-DFUNCTION=works"}, flags...)...)
	program := compile(t, "late.c", "late", append([]string{"-ldl"}, flags...)...)
	const enough = 10 // samples
	var e ends
	var r result
	// fulgur waits for a second at most, which a busy machine may exceed now and then.
	for range 20 {
		r = stopWhileMapping(t, program, library)
		if e = endsOf(t, r.stdout)["late"]; e.total() >= enough && e[""] == e.total() {
			return
		}
		t.Log(e)
	}
	t.Errorf("got ends %v, want at least %d stacks, all whole:\n%s%s", e, enough, r.stdout, r.stderr)
}

// stopWhileMapping samples a program that maps a library and works in it. fulgur is stopped
// meanwhile.
func stopWhileMapping(t *testing.T, program, library string) result {
	t.Helper()
	cmd := exec.Command(program, library)
	d := newDialog(t, cmd)
	startTarget(t, cmd)
	d.line(t) // "ready"
	// Snapshots of up to 34 KiB fill at most half of the ring.
	f := command(t, "profile", "-F", "999", "--ring-size", "32M", "--format", "text", "--no-inlines", "-p", strconv.Itoa(cmd.Process.Pid))
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, f)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := f.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	testenv.Await(t, func() bool {
		stat, err := procfs.Process(f.Process.Pid).Stat()
		return err == nil && stat.State == 'T'
	}, func() string { return "fulgur does not stop" })
	d.proceed(t)
	d.line(t) // "done"
	signal(syscall.SIGCONT)
	return interrupt(t, f)
}
