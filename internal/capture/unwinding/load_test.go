package unwinding

import (
	"errors"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/debugfile/debugfiletest"
)

// A mode without tables loads none, and all operations on them do nothing.
func TestWithoutTables(t *testing.T) {
	for name, o := range map[string]Options{
		"frame pointers":      {Mode: "fp"},
		"kernel stacks alone": {KernelOnly: true},
		"of both kinds":       {Mode: "dwarf", KernelOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			var u Unwinder
			if err := u.Load(o, debugfiletest.NewFinder(t), nil); err != nil {
				t.Fatal(err)
			}
			if u.HasTables() || u.By != bpf.UnwindByFramePointers {
				t.Errorf("got tables: %v, mode %v; want none, frame pointers", u.HasTables(), u.By)
			}
			u.HandleRecord(perfevent.Fork{PID: 2, PPID: 1})
			u.Mapped(1)
			u.Wait(target.System)
			called := false
			err := errors.Join(u.Update(nil, 0, 0), u.Problem(), u.WithFrozenTables(func() error {
				called = true
				return nil
			}), u.Close())
			if err != nil || !called || len(u.FDs()) > 0 || u.Replacements() != nil || u.Memory() != 0 || u.Position() != 0 {
				t.Errorf("got %v; called: %v, want no error and no resources", err, called)
			}
		})
	}
	var u Unwinder
	if err := u.Load(Options{Mode: "guess"}, debugfiletest.NewFinder(t), nil); !errors.Is(err, usage.Err) {
		t.Errorf("unknown mode: got error %v, want a usage error", err)
	}
}
