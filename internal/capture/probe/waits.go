package probe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/internal/bpf"
)

// ORCSymbols are the symbols whose addresses bpf/orc.h needs: the kernel's unwind tables and the code
// that they cover.
var ORCSymbols = []string{"__start_orc_unwind_ip", "__stop_orc_unwind_ip", "__start_orc_unwind", "_stext", "_etext"}

// AdaptWaits adapts programs that follow waits, with bpf/wait.h, to the running kernel. It returns their
// variables. types may be nil.
func AdaptWaits(spec *ebpf.CollectionSpec, types *btf.Cache) (variables map[string]any, err error) {
	// Without access to its unwind tables, use the kernel's own stack walker.
	if err := SetAddresses(spec, ORCSymbols...); err != nil {
		return nil, err
	}
	kernel, err := NewKernel(types)
	if err != nil {
		return nil, err
	}
	hasState, err := kernel.switchHasState()
	return map[string]any{bpf.OffCPUVarSwitchHasState: hasState}, err
}

// switchHasState reports whether the last argument of sched_switch is the state of the thread that
// leaves the CPU.
func (k Kernel) switchHasState() (bool, error) {
	arguments, _, err := k.Tracepoint("sched_switch")
	if err != nil || len(arguments) != 4 {
		return false, err
	}
	_, isNumber := arguments[3].(*btf.Int)
	return isNumber, nil
}
