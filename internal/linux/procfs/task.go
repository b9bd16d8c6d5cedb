package procfs

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// Task is the directory of a process or a thread below /proc.
type Task string

// Self is this process. It exists even where /proc belongs to another PID namespace.
const Self Task = "/proc/self"

// Process returns the directory of process id, or of the thread with that number: /proc
// has directories for threads, though it does not list them.
func Process(id int) Task { return Task(Path(id)) }

// Thread returns the directory of thread tid of process pid. Unlike [Process] it does
// not lead to a thread of another process that has been given the number.
func Thread(pid, tid int) Task { return Task(Path(pid, "task", strconv.Itoa(tid))) }

// Comm returns the name of a thread, for a process the name of its first thread.
func (t Task) Comm() (string, error) {
	return read(t, "comm", func(b []byte) (string, error) { return strings.TrimSuffix(string(b), "\n"), nil })
}

// read returns what parse makes of a file of t.
func read[T any](t Task, name string, parse func([]byte) (T, error)) (T, error) {
	b, err := capability.With(inspect, func() ([]byte, error) { return readFile(string(t) + "/" + name) })
	if err != nil {
		var none T
		return none, err
	}
	return parse(b)
}

// readFile is os.ReadFile with four system calls instead of ten: package os prepares each file
// for the runtime's poller, which refuses files of /proc.
func readFile(path string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	b := make([]byte, 0, 1024)
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
	}
}

// retry calls a system call until no signal interrupts it.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
