package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// boot runs tests of the machine's queue, shows their output, and returns their results,
// also with an error if it has some. It keeps two files in opt.dir: RELEASE.log with the
// output of the tests, and RELEASE.console with the kernel's; for a second machine,
// RELEASE-2.log and so on. These are two serial ports, so that neither interrupts the
// other's lines.
func boot(ctx context.Context, m machine, initramfs string, opt options, shown *output) (*report, error) {
	console := m.path(opt.dir, ".console")
	log, err := os.Create(m.path(opt.dir, ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	ctx, cancel := context.WithTimeout(ctx, opt.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, opt.arch.qemu, emulator(opt)...)
	cmd.Args = append(cmd.Args, "-kernel", m.image, "-initrd", initramfs, "-append", commandLine(opt))
	cmd.Args = append(cmd.Args, opt.arch.serial(console)...)
	cmd.Stderr = os.Stderr
	// The machine ends with the rig. The kernel takes the end of this thread for the rig's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &report{}
	f := follower{queue: m.queue, answers: in, log: log, report: r, dir: m.path(opt.dir, ""), show: func(line string) {
		if opt.verbose || !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "    --- PASS: ") {
			shown.line(m, line)
		}
	}}
	err = errors.Join(f.follow(out), cmd.Wait())
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		r.problem("the machine was stopped after %v", opt.timeout)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return r, err
	}
	kernelLog, err := os.ReadFile(console)
	if err != nil {
		return r, err
	}
	r.kernelLog(string(kernelLog))
	return r, nil
}

// emulator returns QEMU's arguments for the hardware of a machine, except its serial ports.
func emulator(opt options) []string {
	args := []string{
		// Use one thread for all CPUs: with a thread each, a CPU sometimes runs an
		// instruction that another one has patched (static keys, which perf events
		// change), and the kernel dies of a breakpoint that it had removed.
		"-accel", "tcg,thread=single",
		"-smp", strconv.Itoa(opt.cpus), "-m", strconv.Itoa(opt.memory),
		"-nodefaults", "-nic", "none", "-display", "none", "-no-reboot",
	}
	if opt.icount {
		// When all CPUs are idle, time jumps to the next event.
		args = append(args, "-icount", "shift=0,sleep=off")
	}
	return append(args, opt.arch.machine...)
}

// commandLine returns the kernel's arguments. The kernel passes unknown ones to init as
// its environment, which the tests inherit.
func commandLine(opt options) string {
	args := []string{
		// Warnings and worse: the rest would slow the boot down.
		"loglevel=5",
		// A panic ends the machine, by -no-reboot.
		"panic=-1",
		// A soft lockup is reported after twice these seconds, not after 20. On a busy host,
		// a VM has so little of a CPU that the kernel reports them even while it boots.
		"watchdog_thresh=60",
		"FULGUR_RIG=1",
	}
	if len(opt.get) > 0 {
		args = append(args, "FULGUR_RIG_GET="+strings.Join(opt.get, ","))
	}
	return strings.Join(slices.Concat(args, opt.arch.kernel, opt.env), " ")
}

// follower processes a machine's output, and tells the machine which tests to run.
type follower struct {
	queue   *queue
	answers io.Writer // to the machine
	log     io.Writer
	report  *report
	show    func(line string)
	dir     string // for files from the machine

	file    string // that comes, or ""
	content strings.Builder
}

// follow passes each line of the output to the log, the report and show, except for
// requests and the lines of a file.
func (f *follower) follow(out io.Reader) error {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if line != "" || err == nil {
			if err := f.line(line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *follower) line(line string) error {
	switch name, isFile := strings.CutPrefix(line, markFile); {
	case isFile:
		f.file = name
		f.content.Reset()
		return nil
	case f.file != "" && line == markFileEnd:
		name := filepath.Join(f.dir, filepath.Clean("/"+f.file))
		f.file = ""
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		return writeFile(name, base64.NewDecoder(base64.StdEncoding, strings.NewReader(f.content.String())))
	case f.file != "":
		f.content.WriteString(line)
		return nil
	case line == markNext:
		return f.answer()
	}
	if _, err := fmt.Fprintln(f.log, line); err != nil {
		return err
	}
	f.report.line(line)
	f.show(line)
	return nil
}

// answer sends the machine the command of the next tests, an empty one if none are left.
func (f *follower) answer() error {
	t := f.queue.next()
	// The machine may end before it says that they begin.
	f.report.pkg = t.pkg
	command, err := json.Marshal(append([]string{}, t.argv...)) // not null
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f.answers, "%s\n", command); err != nil {
		// The machine has ended. Its last output may say why.
		f.report.problem("answer the machine, next are tests of %s: %v", cmp.Or(t.pkg, "no package"), err)
	}
	return nil
}
