package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// interpreter is a process that reads commands from standard input: one for each load.
type interpreter struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  hash.Hash
	command string // format; its argument is the path of a load
}

// startInterpreter returns a function that starts an interpreter with arguments. command
// is the format of a command that executes a file.
func startInterpreter(command string, args ...string) func(context.Context, string) (process, error) {
	return func(ctx context.Context, binary string) (process, error) {
		i := &interpreter{cmd: newCommand(ctx, binary, args...), stdout: sha256.New(), command: command}
		i.cmd.Stdout = i.stdout
		var err error
		if i.stdin, err = i.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		return i, i.cmd.Start()
	}
}

func (i *interpreter) pid() int { return i.cmd.Process.Pid }

func (i *interpreter) do(load string) error {
	_, err := fmt.Fprintf(i.stdin, i.command+"\n", load)
	return err
}

func (i *interpreter) finish() (run, error) {
	if err := i.stdin.Close(); err != nil {
		i.kill()
		return run{}, err
	}
	return wait(i.cmd, i.stdout)
}

func (i *interpreter) kill() { kill(i.cmd) }

// newCommand returns a command that is killed when this process exits.
func newCommand(ctx context.Context, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	return cmd
}

// wait waits for the end of a process whose results are in h.
func wait(cmd *exec.Cmd, h hash.Hash) (r run, err error) {
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	h.Sum(r.output[:0])
	return r, nil
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
}
