package latency

import (
	"testing"

	"fulgur/internal/capture/events"
)

func TestPairOf(t *testing.T) {
	for _, test := range []struct {
		begin, until, key string
		end               string // "" for an error
		match             Match
		beginKey, endKey  string
	}{
		{"kprobe:f", "", "", "kretprobe:f", KernelCall, "", ""},
		{"uprobe:/p:f", "", "", "uretprobe:/p:f", UserCall, "", ""},
		{"uprobe:/p:f+4", "", "", "", 0, "", ""},
		{"kretprobe:f", "", "", "", 0, "", ""},
		{"uprobe:/p:f", "", "arg0", "", 0, "", ""},
		{"syscalls:sys_enter_*", "", "", "tracepoint:syscalls:sys_exit_*", SameThread, "", ""},
		{"usdt:/p:a:query__start", "", "tid", "usdt:/p:a:query__done", SameThread, "", ""},
		{"usdt:/p:a:gc__begin", "", "arg0", "usdt:/p:a:gc__end", SameFieldInProcess, "arg0", "arg0"},
		{"irq:irq_handler_entry", "", "", "tracepoint:irq:irq_handler_exit", SameThread, "", ""},
		{"sched:sched_switch", "", "", "", 0, "", ""},
		{"sched:sched_wakeup", "sched:sched_switch", "pid=next_pid", "tracepoint:sched:sched_switch", SameField, "pid", "next_pid"},
		{"uprobe:/p:f", "kprobe:g", "arg0", "kprobe:g", SameField, "arg0", "arg0"},
		{"uprobe:/p:f+4", "uprobe:/p:f+8", "", "uprobe:/p:f+0x8", SameThread, "", ""},
		{"uprobe:/p:f", "uprobe:/p:g", "=arg0", "", 0, "", ""},
		{"uprobe:/p:f", "cycles", "", "", 0, "", ""},
	} {
		begin, err := events.Parse(test.begin)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pairOf(begin, test.until, test.key)
		if test.end == "" {
			if err == nil {
				t.Errorf("%s until %q, key %q: got %v, want an error", test.begin, test.until, test.key, p.End)
			}
			continue
		}
		if err != nil || p.End.String() != test.end || p.Match != test.match || p.BeginKey != test.beginKey || p.EndKey != test.endKey {
			t.Errorf("%s until %q, key %q: got %s, match %d, fields %q and %q, %v", test.begin, test.until, test.key, p.End, p.Match, p.BeginKey, p.EndKey, err)
		}
	}
}
