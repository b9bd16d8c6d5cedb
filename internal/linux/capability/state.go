// Package capability reports the privileges of this process: its capabilities, and what
// restricts them. Package doctor derives the consequences.
//
// An executable file lends its capabilities to everyone who may run it. So this package
// keeps those that open files out of the effective set, except while fulgur opens the
// files that it needs them for.
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

// State is everything that determines the privileges of a process.
type State struct {
	// Effective holds the capabilities in effect, and those that [With] can put into
	// effect. Bounding holds the capabilities that the process can gain by executing a
	// file that has them.
	Effective, Bounding Set
	// Lent is the subset of Effective that comes from fulgur's file rather than from its
	// user, and that [With] puts into effect.
	Lent Set
	// Last is the highest capability that the kernel knows. CAP_BPF and CAP_PERFMON were
	// split from CAP_SYS_ADMIN in Linux 5.8.
	Last Capability
	// NoNewPrivs reports whether executing a file cannot grant capabilities.
	NoNewPrivs bool
	// UserNamespace is set outside the initial user namespace, where capabilities do not
	// apply to the machine.
	UserNamespace bool
	// PIDNamespace is set outside the initial pid namespace, and ForeignProc if /proc
	// belongs to another pid namespace than ours. In either case the process IDs that we
	// see are not the ones that BPF programs see.
	PIDNamespace, ForeignProc bool
	// Seccomp is set if a seccomp filter checks our system calls.
	Seccomp bool
}

// Read returns the state of this process. A restriction that the kernel was built without
// counts as absent.
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
	// The link exists on every kernel. If it cannot be read, assume the initial
	// namespace.
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

// In returns the capability that stands for c on the kernel of s: CAP_SYS_ADMIN if c was
// not yet split from it.
func (c Capability) In(s State) Capability {
	if c > s.Last {
		return SysAdmin
	}
	return c
}

// Can reports whether c is in effect, either itself or through CAP_SYS_ADMIN if c was
// split from it.
func (s State) Can(c Capability) bool {
	split := c == BPF || c == Perfmon || c == CheckpointRestore
	return s.Effective.Has(c) || split && s.Effective.Has(SysAdmin)
}

// firstPIDNamespace is the target of /proc/PID/ns/pid in the initial pid namespace, whose
// inode number is PROC_PID_INIT_INO of include/linux/proc_ns.h.
const firstPIDNamespace = "pid:[4026531836]"

// foreignProc reports whether /proc shows this process under another ID, or not at all.
func foreignProc() bool {
	self, err := os.Readlink("/proc/self")
	return err != nil || self != strconv.Itoa(os.Getpid())
}

// parseStatus parses the lines CapEff, CapBnd, NoNewPrivs and Seccomp of
// /proc/self/status, see proc_pid_status(5).
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

// parseSet parses a hexadecimal set of capabilities.
func parseSet(b []byte) (Set, error) {
	s, err := strconv.ParseUint(string(b), 16, 64)
	return Set(s), err
}

// identityMap reports whether uid_map belongs to the initial user namespace, which maps
// every user to itself; see user_namespaces(7).
func identityMap(b []byte) bool {
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}
