package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// sshHosts sets up OpenSSH's client so that it reaches the hosts web1 and web2: a server that it starts for
// each connection, without a port, and beyond the reach of a terminal's Ctrl-C. fulgur's files on the hosts are in the folder tmp. The client knows the
// key of web1 and web2, but not that of "unknown".
func sshHosts(t *testing.T) (tmp string) {
	t.Helper()
	testenv.Root(t)
	testenv.AnyKernel(t)
	server, client, keygen := testenv.File(t, "/usr/sbin/sshd"), testenv.Tool(t, "ssh"), testenv.Tool(t, "ssh-keygen")
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // the server's unit makes it
		t.Fatal(err)
	}
	dir, tmp := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", in(key)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	public, err := os.ReadFile(in("host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sshd_config": fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nSetEnv TMPDIR=%s\n", in("host"), in("user.pub"), tmp),
		"config": fmt.Sprintf("Host *\n BatchMode yes\n IdentityFile %s\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n ProxyCommand setsid %s -i -f %s\n",
			in("user"), in("known"), server, in("sshd_config")),
		"known": "web1,web2 " + string(public),
	} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(in("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", client, in("config"))
	if err := testenv.WriteProgram(in("bin/ssh"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", in("bin")+":"+os.Getenv("PATH"))
	return tmp
}

// awaitEmpty waits until nothing is left in a folder: what fulgur makes on a host.
func awaitEmpty(t *testing.T, dir string) {
	t.Helper()
	var left []os.DirEntry
	testenv.Await(t, func() bool {
		left, _ = os.ReadDir(dir)
		return len(left) == 0
	}, func() string { return fmt.Sprintf("got %v left on the host", left) })
}

// measuring returns the process that measures on a host, whose files are in the folder tmp, 0 if there is
// none.
func measuring(tmp string) int {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		line, _ := os.ReadFile(path) // it may have ended
		if bytes.Contains(line, []byte("\x00--folder="+tmp)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// awaitMeasuring waits until fulgur samples on a host, and returns the process.
func awaitMeasuring(t *testing.T, tmp string, local *exec.Cmd) (pid int) {
	t.Helper()
	testenv.Await(t, func() bool {
		pid = measuring(tmp)
		return pid != 0
	}, func() string { return fmt.Sprintf("nothing runs on the host: %s", local.Stderr) })
	if !testenv.AwaitPolls(t, pid) {
		t.Fatalf("timeout: fulgur does not sample: %s", local.Stderr)
	}
	return pid
}

// busy is a shell script that takes some CPU time, and then exits with 7.
const busy = `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 7`

// A command of another host is measured as one of this machine.
func TestRemoteCommand(t *testing.T) {
	tmp := sshHosts(t)
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "--on", "ssh://web1", "profile", "-F", "999", "-o", out, "--", "sh", "-c", busy)
	if r.code != 7 || !strings.Contains(r.stderr, "written: "+out+"\n") {
		t.Errorf("got %d, %q, want the command's exit code, and the file", r.code, r.stderr)
	}
	for stack := range readFolded(t, out) {
		if !strings.HasPrefix(stack, "sh;") {
			t.Errorf("got the stack %s, want those of the command", stack)
		}
	}
	awaitEmpty(t, tmp)
}

// Several hosts have files of their own.
func TestRemoteHosts(t *testing.T) {
	tmp := sshHosts(t)
	dir := t.TempDir()
	r := fulgur(t, "--on", "ssh://web1", "--on", "ssh://web2", "profile", "-o", filepath.Join(dir, "out.pb.gz"), "--", "sh", "-c", busy)
	if r.code != 7 {
		t.Errorf("got exit code %d: %s", r.code, r.stderr)
	}
	for _, name := range []string{"out-web1.pb.gz", "out-web2.pb.gz"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: got %v, %v", name, st, err)
		}
	}
	awaitEmpty(t, tmp)
}

// Ctrl-C ends the measurement on the host, and brings the result.
func TestRemoteInterrupt(t *testing.T) {
	tmp := sshHosts(t)
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	cmd := command(t, "--on", "ssh://web1", "profile", "-p", strconv.Itoa(os.Getpid()), "-o", out)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitMeasuring(t, tmp, cmd)
	// The terminal sends it to ssh, too.
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, cmd); r.code != 0 {
		t.Errorf("got exit code %d: %s", r.code, r.stderr)
	}
	if st, err := os.Stat(out); err != nil || st.Size() == 0 {
		t.Errorf("got %v, %v, want a profile", st, err)
	}
	awaitEmpty(t, tmp)
}

// However the connection breaks, the host's fulgur and its command end, and nothing is left: neither there,
// nor a part of the output here.
func TestRemoteBroken(t *testing.T) {
	for name, victim := range map[string]func(local *exec.Cmd) (pid int, err error){
		"ssh":    func(local *exec.Cmd) (int, error) { return childOf(local.Process.Pid) },
		"fulgur": func(local *exec.Cmd) (int, error) { return local.Process.Pid, nil },
	} {
		t.Run(name, func(t *testing.T) {
			tmp := sshHosts(t)
			dir := t.TempDir()
			cmd := command(t, "--on", "ssh://web1", "profile", "-o", filepath.Join(dir, "out.pb.gz"), "--", "sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := awaitMeasuring(t, tmp, cmd)
			launched, err := childOf(pid)
			if err != nil {
				t.Fatal(err)
			}
			killed, err := victim(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(killed, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if r := finish(t, cmd); r.code == 0 {
				t.Errorf("got exit code 0: %s", r.stderr)
			}
			awaitEmpty(t, tmp)
			for _, pid := range []int{pid, launched} {
				testenv.Await(t, func() bool { return unix.Kill(pid, 0) != nil || isZombie(pid) }, func() string {
					return fmt.Sprintf("process %d still runs", pid)
				})
			}
			awaitEmpty(t, dir)
		})
	}
}

// childOf returns the oldest child of a process.
func childOf(pid int) (int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			return strconv.Atoi(fields[0])
		}
	}
	return 0, errors.New("no child")
}

// isZombie reports whether a process has ended, but its parent has not noticed.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}

// A host whose key is unknown is not used, and ssh says why.
func TestRemoteUnknownKey(t *testing.T) {
	tmp := sshHosts(t)
	r := fulgur(t, "--on", "ssh://unknown", "profile", "--", "true")
	if r.code != 1 || !strings.Contains(r.stderr, "Host key verification failed") || !strings.Contains(r.stderr, "no connection") {
		t.Errorf("got %d, %q, want that the key is unknown", r.code, r.stderr)
	}
	awaitEmpty(t, tmp)
}

// If the disk of the host is full, the host's fulgur says so, and no file arrives.
func TestRemoteDiskFull(t *testing.T) {
	tmp := sshHosts(t)
	if err := unix.Mount("tmpfs", tmp, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(tmp, unix.MNT_DETACH)
	dir := t.TempDir()
	r := fulgur(t, "--on", "ssh://web1", "profile", "-o", filepath.Join(dir, "out.html"), "--", "sh", "-c", busy)
	if r.code != 1 || !strings.Contains(r.stderr, "no space left on device") {
		t.Errorf("got %d, %q, want that the disk is full", r.code, r.stderr)
	}
	awaitEmpty(t, tmp)
	awaitEmpty(t, dir)
}
