// Command init is process 1 of the rig's machines. It mounts file systems, runs
// every test binary below /src in its own directory with init's own arguments, and
// powers the machine off. test/rig reads its output from the first serial port.
package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		// Before the port is open, output goes to the kernel's console.
		fmt.Println("rig: init:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("rig: power off:", err)
	}
}

// run sets the machine up, runs the tests and prints that it reached the end.
func run() error {
	if err := setUp(); err != nil {
		return err
	}
	port, err := os.OpenFile("/dev/ttyS0", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// Tests write into a pipe, as under go test, not to a terminal.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(port, r)
		copied <- err
	}()

	tests, err := findTests("/src")
	if err != nil {
		return err
	}
	for _, test := range tests {
		args, ok, err := arguments(test)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		pkg := strings.TrimPrefix(filepath.Dir(test), "/src/")
		fmt.Fprintf(w, "rig: begin %s\n", pkg)
		how := "ok"
		if err := runTest(test, args, w); err != nil {
			how = err.Error()
		}
		fmt.Fprintf(w, "\nrig: end %s %s\n", pkg, how)
	}
	if err := sendFiles(w, os.Getenv("FULGUR_RIG_GET")); err != nil {
		return err
	}
	fmt.Fprintln(w, "rig: done")
	if err := w.Close(); err != nil {
		return err
	}
	return <-copied
}

// arguments returns the arguments of a test binary. ok is false if only tests for
// every kernel should run, and the binary has none.
func arguments(test string) (args []string, ok bool, err error) {
	args = slices.Clone(os.Args[1:])
	if os.Getenv("FULGUR_RIG_EVERY") == "1" {
		every, err := os.ReadFile(strings.TrimSuffix(test, ".test") + ".every")
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		args = append(args, "-test.run="+string(every))
	}
	if os.Getenv("FULGUR_RIG_COVER") == "1" {
		name := strings.ReplaceAll(strings.TrimPrefix(filepath.Dir(test), "/src/"), "/", "_")
		args = append(args, "-test.coverprofile=/out/"+name+".cover")
	}
	return args, true, nil
}

// sendFiles writes the files that match the globs, which are separated by commas.
func sendFiles(w io.Writer, globs string) error {
	for glob := range strings.SplitSeq(globs, ",") {
		names, err := filepath.Glob(glob)
		if err != nil {
			return err
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "rig: file %s\n", name)
			text := base64.StdEncoding.EncodeToString(content)
			for line := range slices.Chunk([]byte(text), 512) {
				fmt.Fprintf(w, "%s\n", line)
			}
			fmt.Fprintln(w, "rig: end of file")
		}
	}
	return nil
}

// mounts are the file systems for tests and programs under test.
var mounts = []struct{ fstype, dir string }{
	{"devtmpfs", "/dev"},
	{"devpts", "/dev/pts"},
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"tracefs", "/sys/kernel/tracing"},
	{"debugfs", "/sys/kernel/debug"},
	{"bpf", "/sys/fs/bpf"},
	{"cgroup2", "/sys/fs/cgroup"},
	{"tmpfs", "/tmp"},
	{"tmpfs", "/out"},
}

// setUp sets up the environment that programs expect.
func setUp() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fstype, m.dir, m.fstype, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.fstype, m.dir, err)
		}
	}
	for k, v := range map[string]string{"PATH": "/bin:/usr/bin", "HOME": "/tmp"} {
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	// Hard links, so that a process that runs /bin/true maps /bin/true.
	if out, err := exec.Command("/bin/busybox", "--install", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("install busybox: %w: %s", err, out)
	}
	return loopbackUp()
}

// loopbackUp brings the loopback interface up.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// findTests returns the test binaries below dir, in the order of their names.
func findTests(dir string) ([]string, error) {
	var tests []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".test") {
			tests = append(tests, path)
		}
		return err
	})
	return tests, err
}

// runTest runs a test binary in its own directory and waits for it. Meanwhile it
// reaps orphaned processes. In the end it kills the processes that the test left, so
// that they do not disturb the next one.
func runTest(path string, args []string, out *os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	p, err := os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{
		Dir:   filepath.Dir(path),
		Files: []*os.File{null, out, out},
	})
	if err != nil {
		return err
	}
	status, err := reapUntil(p.Pid)
	if err != nil {
		return err
	}
	// Everything but process 1; ESRCH means that there are no processes.
	if err := unix.Kill(-1, unix.SIGKILL); err == nil {
		if _, err := reapUntil(-1); !errors.Is(err, unix.ECHILD) {
			return err
		}
	}
	switch {
	case status.Signaled():
		return fmt.Errorf("killed by %v", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}

// reapUntil waits for children until pid has ended and returns its status.
func reapUntil(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait for children: %w", err)
		case got == pid:
			return status, nil
		}
	}
}
