package procfs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// ResidentMemory returns the resident memory of a process in bytes.
func (t Task) ResidentMemory() (int64, error) { return read(t, "statm", parseStatm) }

// parseStatm returns the second field of a /proc/PID/statm file, which counts pages, in
// bytes, see proc_pid_statm(5).
func parseStatm(b []byte) (int64, error) {
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, fmt.Errorf("malformed statm line %q", b)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 40)
	return pages * int64(os.Getpagesize()), err
}
