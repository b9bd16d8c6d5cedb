// Package capability raises and drops the capabilities of this process. An executable file
// lends its capabilities to everyone who may run it. So this package keeps those that open
// files out of the effective set, except while fulgur opens the files that it needs them
// for.
package capability

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Capability is the number of a capability, see capabilities(7).
type Capability uint8

// The capabilities that matter to a profiler.
const (
	DACReadSearch     Capability = unix.CAP_DAC_READ_SEARCH
	IPCLock           Capability = unix.CAP_IPC_LOCK
	SysPtrace         Capability = unix.CAP_SYS_PTRACE
	SysAdmin          Capability = unix.CAP_SYS_ADMIN
	SysResource       Capability = unix.CAP_SYS_RESOURCE
	Syslog            Capability = unix.CAP_SYSLOG
	Perfmon           Capability = unix.CAP_PERFMON
	BPF               Capability = unix.CAP_BPF
	CheckpointRestore Capability = unix.CAP_CHECKPOINT_RESTORE
)

// String returns the capability's name, such as "CAP_BPF".
func (c Capability) String() string {
	switch c {
	case DACReadSearch:
		return "CAP_DAC_READ_SEARCH"
	case IPCLock:
		return "CAP_IPC_LOCK"
	case SysPtrace:
		return "CAP_SYS_PTRACE"
	case SysAdmin:
		return "CAP_SYS_ADMIN"
	case SysResource:
		return "CAP_SYS_RESOURCE"
	case Syslog:
		return "CAP_SYSLOG"
	case Perfmon:
		return "CAP_PERFMON"
	case BPF:
		return "CAP_BPF"
	case CheckpointRestore:
		return "CAP_CHECKPOINT_RESTORE"
	}
	return fmt.Sprintf("capability %d", uint8(c))
}

// Set is a set of capabilities: bit n represents capability n.
type Set uint64

// SetOf returns the set that contains caps.
func SetOf(caps ...Capability) Set {
	var s Set
	for _, c := range caps {
		s |= 1 << c
	}
	return s
}

// Has reports whether c is in the set.
func (s Set) Has(c Capability) bool { return s>>c&1 != 0 }
