package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// console is a terminal that a program runs on.
type console struct {
	t    *testing.T
	cmd  *exec.Cmd
	ptmx *os.File
	tty  *os.File

	mu      sync.Mutex
	out     []byte // the program's output
	pressed int    // its length when keys were pressed

	before unix.Termios  // the terminal's modes before the program started
	closed chan struct{} // when all output was read
}

// onTerminal starts fulgur on a terminal of the given size.
func onTerminal(t *testing.T, columns, lines uint16, args ...string) *console {
	t.Helper()
	return startOn(t, columns, lines, command(t, args...))
}

// startOn starts a command on a terminal of the given size.
func startOn(t *testing.T, columns, lines uint16, cmd *exec.Cmd) *console {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ptmx.Close() })
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}); err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, cmd: cmd, ptmx: ptmx, tty: tty, closed: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = tty, tty, tty
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	c.cmd.SysProcAttr.Setsid, c.cmd.SysProcAttr.Setctty = true, true
	c.before = c.modes()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.closed)
		buf := make([]byte, 64<<10)
		for {
			n, err := ptmx.Read(buf)
			c.mu.Lock()
			c.out = append(c.out, buf[:n]...)
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

// written returns the output so far.
func (c *console) written() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.out)
}

// drained returns the whole output of a program that has exited.
func (c *console) drained() string {
	c.t.Helper()
	if err := c.tty.Close(); err != nil { // the last one: reads fail after the rest
		c.t.Fatal(err)
	}
	testenv.Receive(c.t, c.closed, "a process keeps the terminal open")
	return c.written()
}

// inSummary is in the summary of fulgur top, whose screens do not have it.
const inSummary = " of pid "

// ended waits for the summary of fulgur top, and returns the whole output.
func (c *console) ended() string {
	c.t.Helper()
	return c.until(inSummary)
}

// until waits until fulgur has written a text, and returns the whole output.
func (c *console) until(text string) (out string) {
	c.t.Helper()
	testenv.Await(c.t, func() bool {
		out = c.written()
		return strings.Contains(out, text)
	}, func() string { return fmt.Sprintf("output = %q, want %q", out, text) })
	return out
}

// escapes matches the control sequences that draw a screen.
var escapes = regexp.MustCompile("\x1b\\[[?0-9]*[A-Za-z]")

// await waits for a screen with all of the texts, drawn since the last key press.
func (c *console) await(texts ...string) {
	c.t.Helper()
	from := c.pressed
	testenv.Await(c.t, func() bool {
		screens := strings.Split(c.written()[from:], "\x1b[H")
		return slices.ContainsFunc(screens[1:], func(screen string) bool {
			screen = escapes.ReplaceAllString(screen, "")
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
		})
	}, func() string { return fmt.Sprintf("got no screen with %q; output:\n%q", texts, c.written()[from:]) })
}

// press presses keys.
func (c *console) press(keys string) {
	c.t.Helper()
	c.pressed = len(c.written())
	if _, err := c.ptmx.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

func (c *console) modes() unix.Termios {
	c.t.Helper()
	modes, err := unix.IoctlGetTermios(int(c.tty.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return *modes
}

// On a terminal, the user can open the hottest functions, and the terminal's state is
// restored at the end. Names of processes cannot control the terminal.
func TestTop(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	const name = "\x1b]0;t\x07\x1b[2Jx"
	hostile := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(os.Args[0], hostile); err != nil {
		t.Fatal(err)
	}
	victim := exec.Command(hostile)
	victim.Env = append(os.Environ(), "E2E_WORKLOAD=shares")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = victim.Process.Kill()
		_ = victim.Wait()
	})
	pid := strconv.Itoa(victim.Process.Pid)
	for _, end := range []string{"q", "\x03"} {
		t.Run(fmt.Sprintf("%q", end), func(t *testing.T) {
			c := onTerminal(t, 120, 30, "top", "-p", pid, "--interval", "0.3", "--last", "600", "-F", "499")
			c.await("fulgur top: pid "+pid, "fulgur/test/e2e.long", "fulgur/test/e2e.short")
			c.press("/e2e.long\r")
			c.await("filter: e2e.long", "fulgur/test/e2e.long")
			c.press("\r")
			c.await("stacks with fulgur/test/e2e.long", "fulgur/test/e2e.long ← ")
			c.press("\r")
			c.await("a stack with fulgur/test/e2e.long", "test/e2e/workload_test.go:")
			c.press("p")
			c.await("processes", pid+` \x1b]0;t\a\x1b[2J`)
			c.press(" ")
			c.await("PAUSED")
			c.press(end)
			if err := c.cmd.Wait(); err != nil {
				t.Errorf("%v: %q", err, c.written())
			}
			if after := c.modes(); after != c.before {
				t.Errorf("modes of the terminal = %+v, want %+v", after, c.before)
			}
			out := c.ended()
			if strings.Contains(out, "\x1b]0;") || strings.Count(out, "\x1b[2J") > 0 {
				t.Errorf("the name of the process controlled the terminal: %q", out)
			}
			if screen := strings.LastIndex(out, "\x1b[?1049l"); screen < 0 || screen > strings.LastIndex(out, inSummary) {
				t.Errorf("got the summary before the screen was restored: %q", out[max(len(out)-500, 0):])
			}
		})
	}
}

// Without a terminal, fulgur writes the hottest functions of each interval.
func TestTopAsText(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	r := sampleWork(t, time.Second, []string{pid}, "top", "-p", pid, "--interval", "0.4", "--rows", "3", "-q")
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	heading := regexp.MustCompile(`(?m)^fulgur top: pid ` + pid + `, last \d\.\d s, \d+ samples, .*\n +SELF +TOTAL FUNCTION +MODULE\n`)
	if windows := heading.FindAllString(r.stdout, -1); len(windows) == 0 || !strings.Contains(r.stdout, "fulgur/test/e2e.long") {
		t.Errorf("standard output = %s\nwant windows with the function", r.stdout)
	}
	for window := range strings.SplitSeq(r.stdout, "\n\n") {
		if lines := strings.Count(strings.TrimSpace(window), "\n"); lines > 4 {
			t.Errorf("got %d lines, want at most 4, in\n%s", lines, window)
		}
	}
	if bytes.ContainsRune([]byte(r.stdout), '\x1b') {
		t.Errorf("got escape sequences in %q", r.stdout)
	}
}

// A dumb terminal gets text, too.
func TestTopOnDumbTerminal(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	t.Setenv("TERM", "dumb")
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	c := onTerminal(t, 80, 24, "top", "-p", pid, "--interval", "0.4", "--rows", "3", "1")
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, c.written())
	}
	if out := c.ended(); strings.Contains(out, "\x1b") || !strings.Contains(out, "fulgur top: pid "+pid) {
		t.Errorf("output = %q, want text without escapes", out)
	}
}
