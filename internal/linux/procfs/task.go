package procfs

import (
	"os"
	"strconv"
	"strings"

	"fulgur/internal/linux/capability"
)

// Task is the directory of a process or a thread below /proc.
type Task string

// Self is this process. It exists even where /proc belongs to another pid namespace.
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
	b, err := capability.With(inspect, func() ([]byte, error) { return os.ReadFile(string(t) + "/" + name) })
	if err != nil {
		var none T
		return none, err
	}
	return parse(b)
}
