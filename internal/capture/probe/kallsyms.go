package probe

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// kallsyms has the kernel's symbols and, for those who may see them, their
// addresses.
const kallsyms = "/proc/kallsyms"

// addressesHidden reports whether the kernel hides its addresses from this
// process, for want of CAP_SYSLOG or by kptr_restrict: they read as 0.
func addressesHidden() (bool, error) {
	f, err := os.Open(kallsyms)
	if err != nil {
		return false, err
	}
	defer f.Close()
	first := make([]byte, 16)
	if _, err := f.ReadAt(first, 0); err != nil {
		return false, fmt.Errorf("read %s: %w", kallsyms, err)
	}
	return bytes.Equal(first, bytes.Repeat([]byte("0"), len(first))), nil
}

// HideAddresses has the programs do without the addresses of symbols where the
// kernel hides them, as on a kernel that does not have those: they are 0. The
// loader would refuse to look them up.
func HideAddresses(spec *ebpf.CollectionSpec, symbols ...string) error {
	hidden, err := addressesHidden()
	if hidden {
		WithoutAddresses(spec, symbols...)
	}
	return err
}

// WithoutAddresses makes the addresses of symbols 0 in the programs.
func WithoutAddresses(spec *ebpf.CollectionSpec, symbols ...string) {
	for _, program := range spec.Programs {
		for i, ins := range program.Instructions {
			if ins.OpCode.IsDWordLoad() && slices.Contains(symbols, ins.Reference()) {
				program.Instructions[i] = asm.LoadImm(ins.Dst, 0, asm.DWord).WithSource(ins.Source())
			}
		}
	}
}
