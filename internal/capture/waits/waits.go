// Package waits names what a thread waits for, by the functions of the kernel
// that it waits in. It is pure; what it knows is the table in reasons.go.
package waits

import "strings"

// Reason is what a thread waits for, in a word or two: "futex", "disk read".
type Reason string

// Reasons that no function of the kernel tells, and one that callers know.
const (
	// Preempted: another thread got the CPU.
	Preempted Reason = "preempted"
	// Yield: the thread let others have the CPU, but did not sleep.
	Yield Reason = "yield"
	// Other is that of stacks that no rule matches.
	Other Reason = "other"
	// Unknown is that of stacks without a named function.
	Unknown Reason = "unknown"
)

// OfRunnable returns the reason of a thread that did not sleep, as [Of] does of
// one that did.
func OfRunnable(functions []string) Reason {
	if Of(functions) == Yield {
		return Yield
	}
	return Preempted
}

// Of returns the reason of a kernel stack, which is the names of its functions,
// leaf first. The functions that switch threads, and what compilers append to
// names (".isra.0"), make no difference.
func Of(functions []string) Reason {
	best, named := len(rules), false
	for _, name := range functions {
		name, _, _ = strings.Cut(name, ".")
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

// match returns the index of the first rule that a function matches, or a number
// beyond all if none does.
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

// byName are the first rules of whole names, byPrefix those of prefixes, in the order
// of the rules: every wait's every function is looked up.
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

// IsProbe reports whether a function of the kernel is there because of the BPF
// program on a tracepoint that looked at the stack.
func IsProbe(function string) bool {
	for _, prefix := range []string{"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "trace_call_bpf", "bpf_get_stack"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// IsInterrupt reports whether a function of the kernel is the entry of an
// interrupt, below which a stack is of whatever was interrupted.
func IsInterrupt(function string) bool {
	for _, prefix := range []string{"asm_common_interrupt", "asm_sysvec_", "asm_exc_nmi", "el1_interrupt", "el0_interrupt"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// switching are the functions through which every thread leaves its CPU, and
// those of the probe that saw it.
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
