package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// Rights is everything that determines the privileges of this process.
type Rights struct {
	// Effective holds the capabilities in effect, and those that [capability.With] can
	// put into effect. Bounding holds the capabilities that the process can gain by executing a
	// file that has them.
	Effective, Bounding capability.Set
	// Lent is the subset of Effective that comes from fulgur's file rather than from its
	// user.
	Lent capability.Set
	// Last is the highest capability that the kernel knows. CAP_BPF and CAP_PERFMON were
	// split from CAP_SYS_ADMIN in Linux 5.8.
	Last capability.Capability
	// NoNewPrivs reports whether executing a file cannot grant capabilities.
	NoNewPrivs bool
	// UserNamespace is set outside the initial user namespace, where capabilities do not
	// apply to the machine.
	UserNamespace bool
	// PIDNamespace is set outside the initial PID namespace, where only the namespace's
	// processes are measured. ForeignProc is set if /proc belongs to another PID namespace than
	// ours: the process IDs in it are not the ones that BPF programs use.
	PIDNamespace, ForeignProc bool
	// Seccomp is set if a seccomp filter checks our system calls.
	Seccomp bool
}

// readRights returns the rights of this process. A restriction that the kernel was built
// without counts as absent.
func readRights() (Rights, error) {
	r := Rights{Last: capability.BPF, ForeignProc: foreignProc()}
	status, err := procfs.Self.Status()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("read privileges: %w", err)
	}
	r.Effective = capability.Set(status.CapEff) | capability.Withheld()
	if capability.Lent() {
		r.Lent = r.Effective
	}
	r.Bounding = capability.Set(status.CapBnd)
	r.NoNewPrivs, r.Seccomp = status.NoNewPrivs, status.Seccomp
	users, err := os.ReadFile("/proc/self/uid_map")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("read privileges: %w", err)
	}
	r.UserNamespace = err == nil && !identityMap(users)
	r.PIDNamespace = bpf.InPIDNamespace()
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read privileges: %w", err)
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(last)), 10, 8)
	if err != nil {
		return r, fmt.Errorf("read privileges from /proc/sys/kernel/cap_last_cap: %w", err)
	}
	r.Last = capability.Capability(n)
	return r, nil
}

// Known returns the capability that stands for c on this kernel: CAP_SYS_ADMIN if c was not
// yet split from it.
func (r Rights) Known(c capability.Capability) capability.Capability {
	if c > r.Last {
		return capability.SysAdmin
	}
	return c
}

// Can reports whether c is in effect, either itself or through CAP_SYS_ADMIN if c was
// split from it.
func (r Rights) Can(c capability.Capability) bool {
	split := c == capability.BPF || c == capability.Perfmon || c == capability.CheckpointRestore
	return r.Effective.Has(c) || split && r.Effective.Has(capability.SysAdmin)
}

// foreignProc reports whether /proc shows this process under another ID, or not at all.
func foreignProc() bool {
	self, err := os.Readlink("/proc/self")
	return err != nil || self != strconv.Itoa(os.Getpid())
}

// identityMap reports whether uid_map belongs to the initial user namespace, which maps
// every user to itself; see user_namespaces(7).
func identityMap(b []byte) bool {
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}
