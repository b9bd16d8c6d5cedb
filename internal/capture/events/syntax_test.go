package events

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Event{
		"tracepoint:sched:sched_switch":                {Kind: Tracepoint, Group: "sched", Name: "sched_switch"},
		"sched:sched_switch":                           {Kind: Tracepoint, Group: "sched", Name: "sched_switch"},
		"syscalls:sys_enter_*":                         {Kind: Tracepoint, Group: "syscalls", Name: "sys_enter_*"},
		"kprobe:vfs_read":                              {Kind: Kprobe, Name: "vfs_read"},
		"kretprobe:ext4_*":                             {Kind: Kretprobe, Name: "ext4_*"},
		"uprobe:/lib/libc.so.6:malloc":                 {Kind: Uprobe, Path: "/lib/libc.so.6", Name: "malloc"},
		"uprobe:/bin/a:f+0x10":                         {Kind: Uprobe, Path: "/bin/a", Name: "f", Offset: 16},
		"uprobe:./a:std::sort<int*>(int*, int*)":       {Kind: Uprobe, Path: "./a", Name: "std::sort<int*>(int*, int*)"},
		"uretprobe:/bin/a:operator+":                   {Kind: Uretprobe, Path: "/bin/a", Name: "operator+"},
		"usdt:/usr/bin/python3:python:function__entry": {Kind: USDT, Path: "/usr/bin/python3", Group: "python", Name: "function__entry"},
	} {
		got, err := Parse(s)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "cycles", "kprobe", "kprobe:", "kprobe:a:b", "kprobe:a+1", "tracepoint:sched", "tracepoint::x", "sched:",
		"uprobe:/bin/a", "uprobe::f", "uprobe:/bin/a:", "uprobe:/bin/a:f*+4", "usdt:/bin/a:p", "usdt:/bin/a:p:", "foo:bar:baz",
		"kprobe:a\nb", "kprobe:" + strings.Repeat("*", 17), "kprobe:" + strings.Repeat("a", 6000), "/bin/a:f",
	} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q: got %+v, want an error", s, got)
		}
	}
}

// FuzzParse checks that the text of an event is parsed to the same event.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a:b", "kprobe:x*", "uprobe:/a:b+0x1", "usdt:/a:b:c", "uretprobe:a:b", "uretprobe:a:b+1", "uprobe:/a:+0+0", "uprobe:/a:f+1+0", "uprobe:/a:operator++4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(e.String()); err != nil || again != e {
			t.Errorf("%q: got %+v; its text %q is parsed to %+v, %v", s, e, e, again, err)
		}
	})
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"vfs_*", "vfs_read", true}, {"vfs_*", "vfs_", true}, {"vfs_*", "vf", false}, {"*read*", "vfs_read", true},
		{"*ab", "xab", true}, {"v?s", "vfs", true}, {"v?s", "vs", false}, {"a*b*c", "axxbxbc", true}, {"a*b*c", "axxbxb", false}, {"", "", true}, {"*", "", true}, {"a", "ab", false},
	} {
		if got := Match(test.pattern, test.name); got != test.want {
			t.Errorf("Match(%q, %q): got %t, want %t", test.pattern, test.name, got, test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	n := nearest{to: "vfs_raed"}
	for _, name := range []string{"vfs_write", "vfs_read", "vfs_readv", "do_exit", "vfs_read"} {
		n.add(name)
	}
	if got := n.String(); !strings.HasPrefix(got, "; did you mean vfs_read") || strings.Contains(got, "do_exit") {
		t.Errorf("got %q, want vfs_read first, and no do_exit", got)
	}
	n = nearest{to: "syscalls:openat", part: "openat"}
	for _, name := range []string{"syscalls:sys_enter_open", "syscalls:sys_enter_openat", "syscalls:sys_enter_openat2"} {
		n.add(name)
	}
	if got, want := n.String(), "; did you mean syscalls:sys_enter_openat?"; got != want {
		t.Errorf("a part of a name: got %q, want %q", got, want)
	}
	n = nearest{to: "nosuch:event", part: "event"}
	for _, name := range []string{"ras:arm_event", "iommu:map", "xe:xe_pm_event"} {
		n.add(name)
	}
	if got := n.String(); got != "" {
		t.Errorf("a part of a name in another group: got %q, want none", got)
	}
	if got := (&nearest{to: "x"}).String(); got != "" {
		t.Errorf("got %q, want none", got)
	}
}

// Names without the group are compared with those that have one.
func TestNearestPart(t *testing.T) {
	for to, want := range map[string]string{
		"sched_switch": "sched:sched_switch", "sched_swich": "sched:sched_switch", "switch": "sched:sched_switch", "nothing": "",
	} {
		n := nearest{to: to}
		for _, name := range []string{"irq:irq_handler_entry", "other:sched_switch_more", "sched:sched_switch"} {
			n.addAs(name, name[strings.Index(name, ":")+1:])
		}
		exact := n.dropOthers()
		if exact != (to == "sched_switch") || exact && len(n.best) > 1 {
			t.Errorf("%s: got %v, exact %v", to, n.best, exact)
		}
		if got := n.String(); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", to, got, want)
		}
	}
}

func TestIsEvent(t *testing.T) {
	for s, want := range map[string]bool{
		"cycles": false, "cycles:u": false, "instructions:ppp": false, "sched:sched_switch": true, "kprobe:vfs_read": true, "cpu/event=0x1/u": false,
	} {
		if got := IsEvent(s); got != want {
			t.Errorf("%s: got %t, want %t", s, got, want)
		}
	}
}

// The name of a function of the kernel is in the kernel's part of a stack.
func TestInStack(t *testing.T) {
	for kind, want := range map[Kind][2]bool{Tracepoint: {}, Kprobe: {true, false}, Kretprobe: {}, Uprobe: {true, true}, Uretprobe: {}, USDT: {}} {
		if got := [2]bool{kind.InStack(false), kind.InStack(true)}; got != want {
			t.Errorf("%s: got %t with and without the kernel's part, want %t", kind, got, want)
		}
	}
}
