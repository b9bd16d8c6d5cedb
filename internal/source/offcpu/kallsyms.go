package offcpu

import (
	"bytes"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// kallsyms has the kernel's symbols and, for those who may see them, their
// addresses.
const kallsyms = "/proc/kallsyms"

// orcSymbols are what bpf/orc.h asks the addresses of: the kernel's unwind tables
// and the code that they are of.
var orcSymbols = map[string]bool{
	"__start_orc_unwind_ip": true, "__stop_orc_unwind_ip": true, "__start_orc_unwind": true,
	"_stext": true, "_etext": true,
}

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

// withoutORC has the programs do without the kernel's unwind tables, as on a
// kernel that has none: each address of theirs is 0, and the kernel's own walker
// is asked for stacks. The loader would refuse to look the addresses up.
func withoutORC(spec *ebpf.CollectionSpec) {
	for _, program := range spec.Programs {
		for i, ins := range program.Instructions {
			if ins.OpCode.IsDWordLoad() && orcSymbols[ins.Reference()] {
				program.Instructions[i] = asm.LoadImm(ins.Dst, 0, asm.DWord).WithSource(ins.Source())
			}
		}
	}
}
