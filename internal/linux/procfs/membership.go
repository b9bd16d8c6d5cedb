package procfs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"fulgur/internal/linux/capability"
)

// Membership is the cgroup of a process in a hierarchy, a line of /proc/PID/cgroup.
type Membership struct {
	// Hierarchy is the number of the hierarchy, 0 for version 2.
	Hierarchy int
	// Controllers lists a version 1 hierarchy's controllers, such as "cpu,cpuacct", or its name,
	// "name=systemd".
	Controllers string
	// Path is the cgroup's path from the root of the reader's cgroup namespace. It does not
	// contain a line break.
	Path string
}

// Memberships reads the task's cgroups.
func (t Task) Memberships() ([]Membership, error) { return read(t, "cgroup", ParseMemberships) }

// ParseMemberships parses a /proc/PID/cgroup file, see cgroups(7). A cgroup that was removed
// keeps its path.
func ParseMemberships(b []byte) ([]Membership, error) {
	var all []Membership
	for line := range bytes.Lines(b) {
		text := strings.TrimSuffix(string(line), "\n")
		fields := strings.SplitN(text, ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("cgroup: line %q", text)
		}
		hierarchy, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		all = append(all, Membership{hierarchy, fields[1], strings.TrimSuffix(fields[2], " (deleted)")})
	}
	return all, nil
}

// Arguments returns the process's arguments, as far as they are in the first limit bytes.
// The process may change them.
func (t Task) Arguments(limit int64) ([]string, error) { return t.list("cmdline", limit) }

// Environment returns the variables with which the process began, as NAME=VALUE, as far as they are in
// the first limit bytes. The process may change them.
func (t Task) Environment(limit int64) ([]string, error) { return t.list("environ", limit) }

// list returns the texts in a file of t, which end with zero bytes.
func (t Task) list(name string, limit int64) ([]string, error) {
	f, err := capability.With(inspect, func() (*os.File, error) { return os.Open(string(t) + "/" + name) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read-only
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read the %s of a process: %w", name, err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}
