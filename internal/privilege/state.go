// Package privilege tells what this process may do on this machine, and puts
// a refusal of the kernel, which is a bare "operation not permitted", into
// words: what is missing and how to get it.
package privilege

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// State is what decides on a profiler's rights.
type State struct {
	// Effective are the capabilities in effect.
	Effective Set
	// Last is the highest capability that the kernel knows. CAP_BPF and
	// CAP_PERFMON came with Linux 5.8; before, CAP_SYS_ADMIN stood for them.
	Last Capability
	// UserNamespace is set in a user namespace other than the first, where
	// capabilities say nothing about the machine.
	UserNamespace bool
	// PIDNamespace is set in a pid namespace other than the first, and
	// ForeignProc if /proc belongs to another one than ours: in either case
	// the IDs of processes that we see are not those that BPF programs see.
	PIDNamespace, ForeignProc bool
	// Seccomp is set if a seccomp filter judges our system calls.
	Seccomp bool
	// Paranoid is the sysctl kernel.perf_event_paranoid.
	Paranoid int
	// Lockdown is the mode of kernel_lockdown(7).
	Lockdown Lockdown
	// BTF is set if the kernel describes its types in /sys/kernel/btf.
	BTF bool
}

// Read returns the state of this process and this machine. What the kernel
// was built without counts as not restricting.
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
	read("/proc/self/uid_map", func(b []byte) error {
		s.UserNamespace = !identityMap(b)
		return nil
	})
	// The link exists on every kernel; what cannot be read is no evidence.
	if ns, e := os.Readlink("/proc/self/ns/pid"); e == nil {
		s.PIDNamespace = ns != firstPIDNamespace
	}
	read("/proc/sys/kernel/cap_last_cap", func(b []byte) error {
		last, err := parseInt(b)
		s.Last = Capability(last)
		return err
	})
	read("/proc/sys/kernel/perf_event_paranoid", func(b []byte) (err error) {
		s.Paranoid, err = parseInt(b)
		return err
	})
	// Only some privileges let this be read; without it nothing is known,
	// and a refusal will show.
	if b, e := os.ReadFile("/sys/kernel/security/lockdown"); e == nil {
		s.Lockdown = parseLockdown(b)
	}
	_, e := os.Stat("/sys/kernel/btf/vmlinux")
	s.BTF = e == nil
	return s, err
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

// parseStatus reads the lines CapEff and Seccomp of /proc/self/status, see
// proc(5).
func (s *State) parseStatus(b []byte) error {
	found := false
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "CapEff":
			caps, err := strconv.ParseUint(string(value), 16, 64)
			if err != nil {
				return fmt.Errorf("effective capabilities: %w", err)
			}
			s.Effective, found = Set(caps), true
		case "Seccomp":
			s.Seccomp = string(value) != "0"
		}
	}
	if !found {
		return errors.New("no effective capabilities")
	}
	return nil
}

// identityMap reports whether uid_map, see user_namespaces(7), is that of the
// first user namespace, which maps every user to itself.
func identityMap(b []byte) bool {
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}

func parseInt(b []byte) (int, error) {
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}

// Lockdown is a mode of kernel_lockdown(7): each forbids more than the one
// before.
type Lockdown uint8

// The modes of lockdown. Integrity leaves a profiler all it needs;
// confidentiality keeps BPF programs from reading kernel memory.
const (
	LockdownNone Lockdown = iota
	LockdownIntegrity
	LockdownConfidentiality
)

// parseLockdown reads /sys/kernel/security/lockdown, which lists the modes and
// puts the one in force in brackets: "none [integrity] confidentiality".
func parseLockdown(b []byte) Lockdown {
	switch {
	case bytes.Contains(b, []byte("[integrity]")):
		return LockdownIntegrity
	case bytes.Contains(b, []byte("[confidentiality]")):
		return LockdownConfidentiality
	}
	return LockdownNone
}
