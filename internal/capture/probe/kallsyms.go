package probe

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"fulgur/internal/symbols/ksym"
	"fulgur/internal/symbols/symbolize"
)

// addressesHidden reports whether the kernel hides its addresses from this process,
// because of a missing CAP_SYSLOG or kptr_restrict. They then read as 0.
func addressesHidden() (bool, error) {
	f, err := os.Open(symbolize.Kallsyms)
	if err != nil {
		return false, err
	}
	defer f.Close()
	first := make([]byte, 16)
	if _, err := f.ReadAt(first, 0); err != nil {
		return false, fmt.Errorf("read %s: %w", symbolize.Kallsyms, err)
	}
	return bytes.Equal(first, bytes.Repeat([]byte("0"), len(first))), nil
}

// SetAddresses sets the addresses of symbols in the programs, to 0 for symbols that the
// kernel does not have or whose addresses it hides. If the kernel cannot be asked for
// just these, the loader looks them up in all of /proc/kallsyms.
func SetAddresses(spec *ebpf.CollectionSpec, symbols ...string) error {
	if addrs, err := lookUp(symbols); err == nil {
		setAddresses(spec, symbols, addrs)
		return nil
	}
	hidden, err := addressesHidden()
	if hidden {
		WithoutAddresses(spec, symbols...) // or the loader fails
	}
	return err
}

// lookUp asks the kernel for the addresses of symbols.
func lookUp(symbols []string) ([]uint64, error) {
	table, err := ksym.Open(symbolize.Options{})
	if err != nil {
		return nil, err
	}
	defer table.Close()
	return table.Addresses(symbols)
}

// WithoutAddresses sets the addresses of symbols to 0 in the programs.
func WithoutAddresses(spec *ebpf.CollectionSpec, symbols ...string) {
	setAddresses(spec, symbols, make([]uint64, len(symbols)))
}

func setAddresses(spec *ebpf.CollectionSpec, symbols []string, addrs []uint64) {
	for _, program := range spec.Programs {
		for i, ins := range program.Instructions {
			if !ins.OpCode.IsDWordLoad() {
				continue
			}
			if n := slices.Index(symbols, ins.Reference()); n >= 0 {
				program.Instructions[i] = asm.LoadImm(ins.Dst, int64(addrs[n]), asm.DWord).WithSource(ins.Source())
			}
		}
	}
}
