package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Map is a mapping from /proc/PID/maps.
type Map struct {
	// Start and Limit are the first address and one past the last. Offset is the file
	// offset of Start, in bytes.
	Start, Limit, Offset uint64
	// Maj, Min and Ino identify the file. Ino is 0 if there is none.
	Maj, Min uint32
	Ino      uint64
	// Name is the path or pseudo name, or empty for anonymous memory.
	Name string
	// Executable and Writable are the permissions.
	Executable, Writable bool
}

// Maps returns the executable mappings of a process by ascending address, also if its first
// thread has ended.
func (t Task) Maps() ([]Map, error) { return readMaps(t, ParseMaps) }

// AllMaps is [Task.Maps] with the mappings that are not executable, too.
func (t Task) AllMaps() ([]Map, error) {
	return readMaps(t, func(b []byte) ([]Map, error) { return parseMaps(b, true) })
}

// MapsNamed returns the mappings of a process, executable or not, whose name begins with one of
// several prefixes.
func (t Task) MapsNamed(prefixes ...string) ([]Map, error) {
	return readMaps(t, func(b []byte) ([]Map, error) { return parseMapsNamed(b, prefixes) })
}

// readMaps is [read] for the mappings of t. If its first thread has ended, only the others
// show them.
func readMaps(t Task, parse func([]byte) ([]Map, error)) ([]Map, error) {
	whole := func(b []byte) ([]byte, error) { return b, nil }
	b, err := read(t, "maps", whole)
	if err == nil && len(b) == 0 || errors.Is(err, unix.ESRCH) {
		for _, other := range t.others() {
			if shown, err := read(other, "maps", whole); err == nil && len(shown) > 0 {
				return parse(shown)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return parse(b)
}

// parseMapsNamed parses only the lines that contain a prefix: a process may have tens of
// thousands.
func parseMapsNamed(b []byte, prefixes []string) (maps []Map, err error) {
	for line := range bytes.Lines(b) {
		for _, prefix := range prefixes {
			if !bytes.Contains(line, []byte(prefix)) {
				continue
			}
			m, err := parseMap(strings.TrimSuffix(string(line), "\n"))
			if err != nil {
				return nil, fmt.Errorf("maps line %q: %w", line, err)
			}
			if strings.HasPrefix(m.Name, prefix) {
				maps = append(maps, m)
				break
			}
		}
	}
	return maps, nil
}

// ParseMaps parses /proc/PID/maps, see proc_pid_maps(5), and returns the executable
// mappings by ascending address.
func ParseMaps(b []byte) ([]Map, error) { return parseMaps(b, false) }

func parseMaps(b []byte, all bool) ([]Map, error) {
	var maps []Map
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		m, err := parseMap(string(line))
		if err != nil {
			return nil, fmt.Errorf("maps line %q: %w", line, err)
		}
		if !m.Executable && !all {
			continue
		}
		if n := len(maps); n > 0 && m.Start < maps[n-1].Limit {
			return nil, fmt.Errorf("maps line %q: out of order", line)
		}
		maps = append(maps, m)
	}
	return maps, nil
}

// parseMap parses a line: "start-limit perms offset maj:min inode   name". The name may
// contain spaces.
func parseMap(line string) (m Map, err error) {
	next := func(sep byte, base, bits int) uint64 {
		var field string
		if i := strings.IndexByte(line, sep); i >= 0 {
			field, line = line[:i], line[i+1:]
		} else {
			field, line = line, ""
		}
		n, perr := strconv.ParseUint(field, base, bits)
		if perr != nil && err == nil {
			err = perr
		}
		return n
	}
	m.Start = next('-', 16, 64)
	m.Limit = next(' ', 16, 64)
	perms, rest, _ := strings.Cut(line, " ")
	line = rest
	m.Offset = next(' ', 16, 64)
	m.Maj = uint32(next(':', 16, 32))
	m.Min = uint32(next(' ', 16, 32))
	m.Ino = next(' ', 10, 64)
	if err == nil && (m.Limit <= m.Start || len(perms) < 4) {
		err = fmt.Errorf("bad range or permissions")
	}
	// The kernel writes a newline in a name as \012, and escapes nothing else.
	m.Name = strings.ReplaceAll(strings.TrimLeft(line, " "), `\012`, "\n")
	if err == nil {
		m.Writable, m.Executable = perms[1] == 'w', perms[2] == 'x'
	}
	return m, err
}
