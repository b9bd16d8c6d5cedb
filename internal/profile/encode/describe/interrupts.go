package describe

import (
	"strings"

	"fulgur/internal/profile"
)

// IsClock reports whether the samples are those of a clock of the kernel, which is an interrupt: it comes
// late in code that runs with interrupts disabled. Cycle counters sample such code, since theirs cannot be
// disabled.
func IsClock(m profile.Meta) bool {
	return strings.Contains(m.Event, "cpu-clock") || strings.Contains(m.Event, "task-clock")
}

// enabling are the functions of the kernel that enable interrupts, or that the CPU is in when they are
// enabled.
var enabling = map[string]bool{
	"_raw_spin_unlock_irqrestore": true, "_raw_spin_unlock_irq": true, "finish_task_switch": true,
	"native_irq_enable": true, "arch_local_irq_enable": true, "native_safe_halt": true, "pv_native_safe_halt": true,
	"default_idle": true, "pvm_irq_enable": true, "pvm_safe_halt": true, "xen_irq_enable_direct": true, "xen_safe_halt": true,
	"do_softirq": true, "__do_softirq": true, "handle_softirqs": true,
}

// EnablesInterrupts reports whether a function of the kernel enables interrupts, so that a clock counts the
// time before as the function's.
func EnablesInterrupts(function string) bool {
	function, _, _ = strings.Cut(function, ".") // "finish_task_switch.isra.0"
	return enabling[function]
}
