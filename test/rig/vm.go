package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// boot runs the tests in a machine with kernel k, shows their output, and returns their
// results. It keeps two files in opt.dir: RELEASE.log with the output of the tests, and
// RELEASE.console with the kernel's. These are two serial ports, so that neither
// interrupts the other's lines.
func boot(ctx context.Context, k kernel, initramfs string, opt options, shown *output) (*report, error) {
	console := filepath.Join(opt.dir, k.release+".console")
	log, err := os.Create(filepath.Join(opt.dir, k.release+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	ctx, cancel := context.WithTimeout(ctx, opt.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, opt.arch.qemu,
		// Use one thread for both CPUs: with a thread each, a CPU sometimes runs an
		// instruction that the other one has patched (static keys, which perf events
		// change), and the kernel dies of a breakpoint that it had removed.
		"-accel", "tcg,thread=single", "-smp", "2", "-m", "2048",
		"-nodefaults", "-nic", "none", "-display", "none", "-no-reboot",
		"-kernel", k.image, "-initrd", initramfs, "-append", commandLine(k, opt))
	cmd.Args = slices.Concat(cmd.Args, opt.arch.machine, opt.arch.serial(console))
	if opt.icount {
		// When all CPUs are idle, time jumps to the next event.
		cmd.Args = append(cmd.Args, "-icount", "shift=0,sleep=off")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &report{}
	f := follower{log: log, report: r, dir: filepath.Join(opt.dir, k.release), show: func(line string) {
		if opt.verbose || !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "    --- PASS: ") {
			shown.line(k, line)
		}
	}}
	err = errors.Join(f.follow(out), cmd.Wait())
	r.elapsed = time.Since(start)
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		r.problem("the machine was stopped after %v", opt.timeout)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	kernelLog, err := os.ReadFile(console)
	if err != nil {
		return nil, err
	}
	r.kernelLog(string(kernelLog))
	return r, nil
}

// commandLine returns the kernel's arguments. The kernel passes unknown ones to init as
// its environment, and those after -- as its arguments, which init passes on to each test
// binary.
func commandLine(k kernel, opt options) string {
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
	if opt.run == "" && slices.Contains(opt.every, k.name) {
		args = append(args, "FULGUR_RIG_EVERY=1")
	}
	if opt.cover {
		args = append(args, "FULGUR_RIG_COVER=1")
	}
	if len(opt.get) > 0 {
		args = append(args, "FULGUR_RIG_GET="+strings.Join(opt.get, ","))
	}
	args = slices.Concat(args, opt.arch.kernel, opt.env)
	args = append(args, "--", "-test.v", fmt.Sprintf("-test.timeout=%v", opt.timeout/2))
	if opt.run != "" {
		args = append(args, fmt.Sprintf("-test.run=%q", opt.run))
	}
	return strings.Join(append(args, opt.args...), " ")
}

// coverFiles matches the coverage profiles that init makes the tests write.
const coverFiles = "/out/*.cover"

// follower processes a machine's output.
type follower struct {
	log    io.Writer
	report *report
	show   func(line string)
	dir    string // for files from the machine

	file    string // that comes, or ""
	content strings.Builder
}

// follow passes each line of the output to the log, the report and show, except for the
// lines of a file.
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
	}
	if _, err := fmt.Fprintln(f.log, line); err != nil {
		return err
	}
	f.report.line(line)
	f.show(line)
	return nil
}
