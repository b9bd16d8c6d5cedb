package e2e

import (
	"bufio"
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
	cmd := exec.Command(compile(t, "late.c", "late", append([]string{"-ldl"}, flags...)...), library)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, lines := start(t, cmd), bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got line %q, want %q", lines.Text(), want)
		}
	}
	next("ready")
	// A snapshot takes up to 34 KiB, and the ring is half full of them at most.
	r := command(t, "profile", "-F", "199", "--ring-size", "8M", "--format", "text", "--no-inlines", "-p", strconv.Itoa(cmd.Process.Pid))
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, r)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := r.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	testenv.Await(t, func() bool {
		stat, err := procfs.Process(r.Process.Pid).Stat()
		return err == nil && stat.State == 'T'
	}, func() string { return "fulgur does not stop" })
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	next("done")
	signal(syscall.SIGCONT)
	result := interrupt(t, r)
	e := endsOf(t, result.stdout)["late"]
	if e[""] == 0 || e[""] < e.total() {
		t.Errorf("got ends %v, want whole stacks only:\n%s%s", e, result.stdout, result.stderr)
	}
}
