package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// Exit codes of shells for a command that cannot be started.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// CommandError means that a command could not be started.
type CommandError struct {
	// Name is the command as given.
	Name string
	// Err is the cause.
	Err  error
	code int
}

// Error implements error.
func (e *CommandError) Error() string {
	if e.code == exitNotFound {
		return e.Name + ": command not found"
	}
	return fmt.Sprintf("%s: cannot run it: %v", e.Name, e.Err)
}

// Unwrap returns e.Err.
func (e *CommandError) Unwrap() error { return e.Err }

// ExitCode returns a shell's exit code: 127 if the command was not found, 126 if it
// cannot be executed.
func (e *CommandError) ExitCode() int { return e.code }

// ErrPrivileged means that a command gains privileges when executed. The kernel
// withholds them while a tracer without CAP_SYS_PTRACE traces it, so it would behave
// differently.
var ErrPrivileged = errors.New("it gains privileges when executed, which fulgur can only keep with CAP_SYS_PTRACE: run fulgur with sudo")

// lookPath returns the path of a command.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil // PATH contains ".": the user's choice
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", &CommandError{Name: name, Err: err, code: exitNotFound}
	}
	if lookup := (*exec.Error)(nil); errors.As(err, &lookup) {
		err = lookup.Err // without the name, which we add
	}
	if err == nil && gainsPrivileges(path) && !capability.Available(capability.SysPtrace) {
		err = ErrPrivileged
	}
	if err != nil {
		return "", &CommandError{Name: name, Err: err, code: exitNotExecutable}
	}
	return path, nil
}

// startError describes a failed execve of an existing file.
func startError(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // without "fork/exec"
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the interpreter or dynamic loader that it names is missing: %w", err)
	}
	return &CommandError{Name: name, Err: err, code: exitNotExecutable}
}

// gainsPrivileges reports whether the file is set-user-ID, set-group-ID or has
// capabilities.
func gainsPrivileges(path string) bool {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return true
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}
