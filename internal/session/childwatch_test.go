package session

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
)

// The hint about children that are not measured appears for running, new and exited
// children, but not for threads or children of other processes.
func TestChildWatch(t *testing.T) {
	const parent = 1 << 30 // above the limit of Linux for PIDs
	for name, test := range map[string]struct {
		record perfevent.Record
		want   bool
	}{
		"fork":             {perfevent.Fork{PID: 7, TID: 7, PPID: parent, PTID: parent}, true},
		"exit":             {perfevent.Exit{PID: 7, TID: 7, PPID: parent, PTID: parent}, true},
		"thread":           {perfevent.Fork{PID: parent, TID: 7, PPID: parent, PTID: parent}, false},
		"thread ends":      {perfevent.Exit{PID: parent, TID: 7, PPID: parent, PTID: parent}, false},
		"another's":        {perfevent.Fork{PID: 7, TID: 7, PPID: 8, PTID: 8}, false},
		"exec":             {perfevent.Comm{PID: parent, TID: parent, Exec: true}, false},
		"another's, later": {perfevent.Exit{PID: 7, TID: 7, PPID: 8, PTID: 8}, false},
	} {
		o := newChildWatch(target.Target{Scope: target.Processes, PIDs: []int{parent}})
		o.handleRecord(test.record)
		o.handleRecord(perfevent.Fork{PID: 9, TID: 9, PPID: 8, PTID: 8})
		if hint := o.hint(); strings.Contains(hint, "child processes") != test.want || !test.want && hint != "" {
			t.Errorf("%s: got %q, want a hint: %v", name, hint, test.want)
		}
	}
	for _, measured := range []target.Target{
		{Scope: target.System},
		{Scope: target.Processes, PIDs: []int{parent}, Children: true},
	} {
		o := newChildWatch(measured)
		o.handleRecord(perfevent.Fork{PID: 7, TID: 7, PPID: parent, PTID: parent})
		if hint := o.hint(); hint != "" {
			t.Errorf("%s: got %q, want nothing", measured, hint)
		}
	}
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	o := newChildWatch(target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}})
	if hint := o.hint(); !strings.Contains(hint, "child processes") {
		t.Errorf("running child: got %q, want a hint", hint)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
}
