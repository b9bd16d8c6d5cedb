// Command init is process 1 of the rig's machines. It mounts file systems, runs the
// tests that test/rig tells it to, one package after the other, and powers the machine
// off. On the first serial port, test/rig reads the output, and answers each request
// for the next tests with their command.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	port, err := openPort("/dev/ttyS0")
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

	for commands := json.NewDecoder(port); ; {
		fmt.Fprintln(w, "rig: next")
		var argv []string
		if err := commands.Decode(&argv); err != nil {
			return fmt.Errorf("read the next command: %w", err)
		}
		if len(argv) == 0 {
			break
		}
		pkg := strings.TrimPrefix(filepath.Dir(argv[0]), "/src/")
		fmt.Fprintf(w, "rig: begin %s\n", pkg)
		how := "ok"
		if err := runTest(argv, w); err != nil {
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

// openPort opens a serial port to read and write lines of any length, without an echo.
func openPort(name string) (*os.File, error) {
	port, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	mode, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("get the mode of %s: %w", name, err)
	}
	mode.Iflag, mode.Lflag = 0, 0
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, mode); err != nil {
		return nil, fmt.Errorf("set the mode of %s: %w", name, err)
	}
	return port, nil
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

// runTest runs a test binary in its own directory and waits for it. Meanwhile it
// reaps orphaned processes. In the end it kills the processes that the test left, so
// that they do not disturb the next one.
func runTest(argv []string, out *os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir:   filepath.Dir(argv[0]),
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
