package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// runOf is a run of a script to its end.
type runOf struct {
	cpu    time.Duration // user and system
	output [sha256.Size]byte
}

// runScript has sqlite run a script, in memory.
func runScript(ctx context.Context, binary, script string) (r runOf, err error) {
	in, err := os.Open(script)
	if err != nil {
		return r, err
	}
	defer in.Close()
	out, err := os.CreateTemp("", "fulgur-bench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, out.Close(), os.Remove(out.Name())) }()
	cmd := exec.CommandContext(ctx, binary, ":memory:")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%s: %w", binary, err)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return r, err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, out); err != nil {
		return r, err
	}
	hash.Sum(r.output[:0])
	return r, nil
}

// target is a sqlite process that runs scripts on request.
type target struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// startTarget starts a process that waits for scripts. It is killed when this process
// exits.
func startTarget(ctx context.Context, binary string) (*target, error) {
	t := &target{cmd: exec.CommandContext(ctx, binary, ":memory:")}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if t.stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return t, t.cmd.Start()
}

func (t *target) pid() int { return t.cmd.Process.Pid }

// repeat makes the process run a script the given number of times and then exit; a
// negative number means forever.
func (t *target) repeat(script string, times int) {
	go func() {
		for i := 0; i != times; i++ {
			if _, err := fmt.Fprintf(t.stdin, ".read %s\n", script); err != nil {
				return // the process has exited
			}
		}
		_ = t.stdin.Close()
	}()
}

// stop ends the process.
func (t *target) stop() {
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait() // killed
}
