// Package capability tells what rights this process has: its capabilities, and
// what limits them. What follows from that is for package doctor to say.
//
// The capabilities of an executable file are lent to everyone who may run it. So the
// package also keeps those by which files can be opened out of effect, but for the
// moments in which fulgur opens what it was lent them for.
package capability

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// State is what decides on the rights of a process.
type State struct {
	// Effective are the capabilities in effect, and those that [With] puts into
	// effect; Bounding are those that the process can gain by executing a file that
	// has them.
	Effective, Bounding Set
	// Lent are those capabilities in Effective that are fulgur's file's, and not its
	// user's, and that [With] puts into effect.
	Lent Set
	// Last is the highest capability that the kernel knows. CAP_BPF and
	// CAP_PERFMON came with Linux 5.8; before, CAP_SYS_ADMIN stood for them.
	Last Capability
	// NoNewPrivs is set if no file that is executed gives capabilities.
	NoNewPrivs bool
	// UserNamespace is set in a user namespace other than the first, where
	// capabilities say nothing about the machine.
	UserNamespace bool
	// PIDNamespace is set in a pid namespace other than the first, and
	// ForeignProc if /proc belongs to another one than ours: in either case
	// the IDs of processes that we see are not those that BPF programs see.
	PIDNamespace, ForeignProc bool
	// Seccomp is set if a seccomp filter judges our system calls.
	Seccomp bool
}

// Read returns the state of this process. What the kernel was built without
// counts as not restricting.
func Read() (State, error) {
	s := State{Last: BPF, ForeignProc: foreignProc()}
	var err error
	read := func(file string, parse func([]byte) error) {
		b, e := os.ReadFile(file)
		if errors.Is(e, fs.ErrNotExist) {
			return
		}
		if e == nil {
			e = parse(b)
		}
		if e != nil && err == nil {
			err = fmt.Errorf("read privileges from %s: %w", file, e)
		}
	}
	read("/proc/self/status", s.parseStatus)
	s.Lent = withheld
	s.Effective |= withheld
	read("/proc/self/uid_map", func(b []byte) error {
		s.UserNamespace = !identityMap(b)
		return nil
	})
	// The link exists on every kernel; what cannot be read is no evidence.
	if ns, e := os.Readlink("/proc/self/ns/pid"); e == nil {
		s.PIDNamespace = ns != firstPIDNamespace
	}
	read("/proc/sys/kernel/cap_last_cap", func(b []byte) error {
		last, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 8)
		s.Last = Capability(last)
		return err
	})
	return s, err
}

// In returns the capability that the kernel of s knows c by: those that were
// split from CAP_SYS_ADMIN are that one before they were.
func (c Capability) In(s State) Capability {
	if c > s.Last {
		return SysAdmin
	}
	return c
}

// Can reports whether c is in effect, by itself or by CAP_SYS_ADMIN, which
// stands for what was split from it.
func (s State) Can(c Capability) bool {
	split := c == BPF || c == Perfmon || c == CheckpointRestore
	return s.Effective.Has(c) || split && s.Effective.Has(SysAdmin)
}

// firstPIDNamespace is what /proc/PID/ns/pid shows of the first pid namespace,
// whose inode is PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h.
const firstPIDNamespace = "pid:[4026531836]"

// foreignProc reports whether /proc is one in which we have another ID than we
// know, or none.
func foreignProc() bool {
	self, err := os.Readlink("/proc/self")
	return err != nil || self != strconv.Itoa(os.Getpid())
}

// parseStatus reads the lines CapEff, CapBnd, NoNewPrivs and Seccomp of
// /proc/self/status, see proc(5).
func (s *State) parseStatus(b []byte) error {
	found := false
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		value = bytes.TrimSpace(value)
		var err error
		switch string(key) {
		case "CapEff":
			s.Effective, err = parseSet(value)
			found = true
		case "CapBnd":
			s.Bounding, err = parseSet(value)
		case "NoNewPrivs":
			s.NoNewPrivs = string(value) != "0"
		case "Seccomp":
			s.Seccomp = string(value) != "0"
		}
		if err != nil {
			return fmt.Errorf("capabilities %s: %w", key, err)
		}
	}
	if !found {
		return errors.New("no effective capabilities")
	}
	return nil
}

// parseSet reads a set of capabilities in hexadecimal.
func parseSet(b []byte) (Set, error) {
	s, err := strconv.ParseUint(string(b), 16, 64)
	return Set(s), err
}

// identityMap reports whether uid_map, see user_namespaces(7), is that of the
// first user namespace, which maps every user to itself.
func identityMap(b []byte) bool {
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}
