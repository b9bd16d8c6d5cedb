package privilege

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is a privilege of capabilities(7), by its number.
type Capability uint8

// The capabilities that make a difference to a profiler.
const (
	DACReadSearch     Capability = unix.CAP_DAC_READ_SEARCH
	SysPtrace         Capability = unix.CAP_SYS_PTRACE
	SysAdmin          Capability = unix.CAP_SYS_ADMIN
	SysResource       Capability = unix.CAP_SYS_RESOURCE
	Perfmon           Capability = unix.CAP_PERFMON
	BPF               Capability = unix.CAP_BPF
	CheckpointRestore Capability = unix.CAP_CHECKPOINT_RESTORE
)

// String returns the capability's name, "CAP_BPF".
func (c Capability) String() string {
	switch c {
	case DACReadSearch:
		return "CAP_DAC_READ_SEARCH"
	case SysPtrace:
		return "CAP_SYS_PTRACE"
	case SysAdmin:
		return "CAP_SYS_ADMIN"
	case SysResource:
		return "CAP_SYS_RESOURCE"
	case Perfmon:
		return "CAP_PERFMON"
	case BPF:
		return "CAP_BPF"
	case CheckpointRestore:
		return "CAP_CHECKPOINT_RESTORE"
	}
	return fmt.Sprintf("capability %d", uint8(c))
}

// Set is a set of capabilities: bit n is capability n.
type Set uint64

// Has reports whether c is in the set.
func (s Set) Has(c Capability) bool { return s>>c&1 != 0 }

// names lists capabilities as a sentence does.
func names(caps []Capability) string {
	text := make([]string, len(caps))
	for i, c := range caps {
		text[i] = c.String()
	}
	return strings.Join(text, " and ")
}
