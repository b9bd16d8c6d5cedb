package perfdata

import (
	"cmp"
	"fmt"
	"strings"

	"fulgur/internal/profile"
)

// kernelPID is the process ID in mappings of the kernel and its modules.
const kernelPID = -1

// isKernel reports whether a mapping of the kernel or a module, with a path from perf, is
// of the kernel.
func isKernel(path string) bool { return strings.HasPrefix(path, profile.KernelPath) }

// isVmlinux reports whether a path in the table of build IDs, of the kernel or a module, is
// of the kernel: perf writes the vmlinux's if there is one.
func isVmlinux(path string) bool {
	return !strings.HasPrefix(path, "[") && !strings.Contains(path, ".ko")
}

// IsKernel reports whether m is the kernel, without its modules.
func (m Mapped) IsKernel() bool { return m.Path == profile.KernelPath }

// mapKernel notes where the kernel is, and reports whether it is the code to profile. path
// is as in "[kernel.kallsyms]_text", and offset the address of the symbol, but 0 from old
// versions of perf.
func (ps *processes) mapKernel(path, buildID string, start, offset uint64) (bool, error) {
	if !isKernel(path) {
		return false, nil // a module
	}
	ps.kernelText = start
	b, err := ps.binary(Mapped{Path: profile.KernelPath, BuildID: buildID})
	if b == nil || !b.Kernel() {
		return false, err
	}
	symbol := cmp.Or(strings.TrimPrefix(path, profile.KernelPath), "_text")
	l, ok := b.KernelLayout(symbol, cmp.Or(offset, start))
	if !ok {
		return false, fmt.Errorf("%s has no symbol %q, by which perf located the kernel", b.Name, symbol)
	}
	ps.kernel = l
	return true, nil
}
