package probe

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// kallsyms lists the kernel's symbols, with addresses for privileged users.
const kallsyms = "/proc/kallsyms"

// addressesHidden reports whether the kernel hides its addresses from this process,
// because of a missing CAP_SYSLOG or kptr_restrict. They then read as 0.
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

// HideAddresses sets the addresses of symbols to 0 in the programs if the kernel
// hides them, as for symbols that the kernel does not have. Otherwise the loader
// would fail to look them up.
func HideAddresses(spec *ebpf.CollectionSpec, symbols ...string) error {
	hidden, err := addressesHidden()
	if hidden {
		WithoutAddresses(spec, symbols...)
	}
	return err
}

// WithoutAddresses sets the addresses of symbols to 0 in the programs.
func WithoutAddresses(spec *ebpf.CollectionSpec, symbols ...string) {
	for _, program := range spec.Programs {
		for i, ins := range program.Instructions {
			if ins.OpCode.IsDWordLoad() && slices.Contains(symbols, ins.Reference()) {
				program.Instructions[i] = asm.LoadImm(ins.Dst, 0, asm.DWord).WithSource(ins.Source())
			}
		}
	}
}
