// Package procfs reads /proc/PID. The kernel requires CAP_SYS_PTRACE to read the mappings
// of another user's processes, and any of their files if /proc is mounted with hidepid.
// That capability is in effect only here and for the files that package process opens:
// every path begins with the number of a process.
package procfs

import (
	"os"
	"path/filepath"
	"strconv"

	"fulgur/internal/linux/capability"
)

// inspect is the capability needed to inspect processes of other users.
var inspect = capability.SetOf(capability.SysPtrace)

// Path returns the path of elements below /proc/ID for a process or thread. /proc has
// directories for threads too, though it does not list them.
func Path(id int, elements ...string) string {
	return "/proc/" + filepath.Join(strconv.Itoa(id), filepath.Join(elements...))
}

// ReadFile returns the contents of a file below /proc/ID.
func ReadFile(id int, elements ...string) ([]byte, error) {
	return capability.With(inspect, func() ([]byte, error) { return os.ReadFile(Path(id, elements...)) })
}

// Readlink returns the target of a link below /proc/ID.
func Readlink(id int, elements ...string) (string, error) {
	return capability.With(inspect, func() (string, error) { return os.Readlink(Path(id, elements...)) })
}

// Numbers returns the entries of a directory below /proc/ID whose names are numbers, such
// as the threads in its task directory.
func Numbers(id int, elements ...string) ([]int, error) { return numbers(Path(id, elements...)) }

// Processes returns the IDs of all processes.
func Processes() ([]int, error) { return numbers("/proc") }

// OwnMemory opens the memory of this process. If the program's file has capabilities,
// root owns /proc/self/mem.
func OwnMemory() (*os.File, error) {
	return capability.With(capability.SetOf(capability.DACReadSearch), func() (*os.File, error) { return os.Open("/proc/self/mem") })
}

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
