package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// ID names a process. A pid alone names nothing, since pids are reused.
type ID struct {
	// PID is the process (thread group) ID in our pid namespace.
	PID int
	// Start is when the process started, in clock ticks since boot.
	Start uint64
}

// Identify returns the identity of the process that has pid now. The error
// wraps fs.ErrNotExist if there is none.
func Identify(pid int) (ID, error) {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	start, err := parseStart(b)
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return ID{pid, start}, nil
}

// parseStart returns field 22 of a /proc/PID/stat file, see proc_pid_stat(5).
// The second field, the name in parentheses, may itself hold blanks and
// parentheses: the others are counted from its last one.
func parseStart(stat []byte) (uint64, error) {
	const afterName = 22 - 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= afterName {
		return 0, fmt.Errorf("stat file has %d fields after the name", len(fields))
	}
	return strconv.ParseUint(string(fields[afterName]), 10, 64)
}

// procPath returns the path of a file in the process's /proc directory.
func procPath(pid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}
