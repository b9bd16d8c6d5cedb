package perfdata

import (
	"debug/elf"
	"runtime"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackcopy"
	"fulgur/internal/unwind/stackend"
)

// unwinder walks copied stacks.
type unwinder struct {
	walker  *stackcopy.Walker
	machine elf.Machine
	find    func(Mapped, elf.Machine) unwind.Code
	codes   map[*bolt.Binary]unwind.Code

	// The stack that is being walked: the layout of its process, and whether it has a frame of generated code.
	layout    bolt.Layout
	generated bool
}

// newUnwinder returns an unwinder for stacks of a machine, by perf's name for it.
func newUnwinder(arch string, find func(Mapped, elf.Machine) unwind.Code) *unwinder {
	u := &unwinder{find: find, codes: map[*bolt.Binary]unwind.Code{}, machine: machineOf(arch)}
	u.walker = stackcopy.New(u.machine, u.code)
	return u
}

// walk returns the frames of a stack of a process with the given layout, see [stackcopy.Walker.Walk].
func (u *unwinder) walk(layout bolt.Layout, state perfevent.UserState) ([]unwind.Frame, stackend.End) {
	u.layout, u.generated = layout, false
	return u.walker.Walk(state)
}

// code returns the code at an address.
func (u *unwinder) code(addr uint64) (c unwind.Code, bias uint64, ok bool) {
	region, ok := u.layout.Find(addr)
	if !ok {
		return unwind.Code{}, 0, false
	}
	u.generated = u.generated || isGenerated(region.Binary)
	c, known := u.codes[region.Binary]
	if !known {
		switch {
		case isGenerated(region.Binary):
			c = unwind.Generated()
		case u.find != nil:
			c = u.find(Mapped{Path: region.Binary.Name, BuildID: region.Binary.BuildID}, u.machine)
		}
		u.codes[region.Binary] = c
	}
	if c.Table == nil {
		return c, 0, true
	}
	linked, ok := c.Table.Address(region.Address(addr))
	if !ok {
		return unwind.Code{Fallback: c.Fallback}, 0, true // not code
	}
	return c, addr - linked, true
}

// machineOf returns the machine that perf calls arch, as uname -m does. Without a name, it
// is this one's.
func machineOf(arch string) elf.Machine {
	if arch == "" {
		arch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	}
	return map[string]elf.Machine{"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}[arch]
}
