// Package procfs reads and parses the files of /proc, and cgroup.procs. The kernel
// requires CAP_SYS_PTRACE to read the mappings of another user's processes, and any of
// their files if /proc is mounted with hidepid. That capability is in effect only here and
// for the files that package process opens: every such path begins with the number of a
// process.
package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fulgur/internal/linux/capability"
)

// inspect is the capability needed to inspect processes of other users.
var inspect = capability.SetOf(capability.SysPtrace)

// Path returns the path of elements below /proc/ID for a process or thread.
func Path(id int, elements ...string) string {
	return "/proc/" + filepath.Join(strconv.Itoa(id), filepath.Join(elements...))
}

// Executable returns the path of the program that a process executes, in the mount namespace of the
// process. Kernel threads have none. It does not follow the path.
func Executable(pid int) (string, error) {
	path, err := Readlink(pid, "exe")
	return strings.TrimSuffix(path, " (deleted)"), err
}

// Readlink returns the target of a link below /proc/ID, also of a process whose first thread has
// ended.
func Readlink(id int, elements ...string) (string, error) {
	return Through(id, func(id int) (string, error) {
		return capability.With(inspect, func() (string, error) { return os.Readlink(Path(id, elements...)) })
	})
}

// Threads returns the IDs of the threads of the process t.
func (t Task) Threads() ([]int, error) { return numbers(string(t) + "/task") }

// Threads returns the IDs of the threads of process pid.
func Threads(pid int) ([]int, error) { return numbers(Path(pid, "task")) }

// Processes returns the IDs of all processes.
func Processes() ([]int, error) { return numbers("/proc") }

// numbers returns the entries of a directory whose names are numbers.
func numbers(dir string) ([]int, error) {
	entries, err := capability.With(inspect, func() ([]os.DirEntry, error) { return os.ReadDir(dir) })
	var all []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	return all, err
}
