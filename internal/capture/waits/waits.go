// Package waits names the reason why a thread waits, by the kernel functions in its
// stack. It is a pure function of the table in reasons.go.
package waits

import "strings"

// Reason is a wait reason, such as "futex" or "disk read".
type Reason string

// Reasons that do not come from rules.
const (
	// Preempted: another thread got the CPU.
	Preempted Reason = "preempted"
	// Yield: the thread yielded the CPU, but did not sleep.
	Yield Reason = "yield"
	// Other: no rule matches the stack.
	Other Reason = "other"
	// Unknown: the stack has no named function.
	Unknown Reason = "unknown"
)

// Reasons of waits for the kernel's RCU readers. fulgur waits for BPF programs to stop using
// what it replaces, such as unwind tables.
const (
	gracePeriod    Reason = "grace period"
	ownGracePeriod Reason = "fulgur's own grace period"
)

// Own returns the reason r of a wait of fulgur itself, which the measurement may cause.
func (r Reason) Own() Reason {
	if r == gracePeriod {
		return ownGracePeriod
	}
	return r
}

// OfRunnable returns the reason for a thread that did not sleep.
func OfRunnable(functions []string) Reason {
	if Of(functions) == Yield {
		return Yield
	}
	return Preempted
}

// Of returns the reason for a kernel stack, given as function names, leaf first. It
// ignores functions of the scheduler, and suffixes that compilers add to names
// (".isra.0").
func Of(functions []string) Reason {
	best, named := len(rules), false
	for _, name := range functions {
		name, _, _ = strings.Cut(name, ".")
		name = withoutArchitecture(name)
		if name == "" || switching[name] {
			continue
		}
		named = true
		best = min(best, match(name))
	}
	switch {
	case best < len(rules):
		return rules[best].reason
	case named:
		return Other
	}
	return Unknown
}

// withoutArchitecture returns the name of the function of a system call without the prefix of the architecture: "sys_poll" for
// "__x64_sys_poll". It returns other names unchanged.
func withoutArchitecture(name string) string {
	for _, prefix := range []string{"__x64_", "__arm64_"} {
		if call, ok := strings.CutPrefix(name, prefix); ok && strings.HasPrefix(call, "sys_") {
			return call
		}
	}
	return name
}

// match returns the index of the first rule that a function matches, or a number
// larger than all indexes.
func match(name string) int {
	first, ok := byName[name]
	if !ok {
		first = len(rules)
	}
	for _, p := range byPrefix {
		if p.rule >= first {
			break
		}
		if strings.HasPrefix(name, p.prefix) {
			return p.rule
		}
	}
	return first
}

// byName and byPrefix map names and prefixes to their first rule. They are indexes
// because every function of every wait is looked up.
var byName, byPrefix = indexRules()

type prefixRule struct {
	prefix string
	rule   int
}

func indexRules() (names map[string]int, prefixes []prefixRule) {
	names = map[string]int{}
	for i, r := range rules {
		for _, pattern := range r.functions {
			if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
				prefixes = append(prefixes, prefixRule{prefix, i})
			} else if _, known := names[pattern]; !known {
				names[pattern] = i
			}
		}
	}
	return names, prefixes
}

// IsProbe reports whether a kernel function is on the stack because a BPF program on a
// tracepoint recorded the stack.
func IsProbe(function string) bool {
	for _, prefix := range []string{"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "trace_call_bpf", "bpf_get_stack", "perf_trace_", "perf_syscall_enter", "perf_syscall_exit", "perf_call_bpf_"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// IsInterrupt reports whether a kernel function is the entry of an interrupt. The frames
// below it are the interrupted code.
func IsInterrupt(function string) bool {
	for _, prefix := range []string{"asm_common_interrupt", "asm_sysvec_", "asm_exc_nmi", "el1_interrupt", "el0_interrupt"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// switching holds the functions through which every thread leaves its CPU, and the
// functions of the probe.
var switching = map[string]bool{
	"__schedule":                     true,
	"schedule":                       true,
	"schedule_timeout":               true,
	"schedule_idle":                  true,
	"io_schedule":                    true,
	"io_schedule_timeout":            true,
	"schedule_preempt_disabled":      true,
	"schedule_hrtimeout_range":       true,
	"schedule_hrtimeout_range_clock": true,
	"__traceiter_sched_switch":       true,
	"bpf_trace_run4":                 true,
}
