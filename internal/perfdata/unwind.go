package perfdata

import (
	"debug/elf"

	"fulgur/internal/bolt"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
)

// unwinder walks copied stacks.
type unwinder struct {
	walker unwind.Walker
	find   func(Mapped, elf.Machine) unwind.Code
	codes  map[*bolt.Binary]unwind.Code
	frames []unwind.Frame

	// The stack that is being walked.
	layout bolt.Layout
	state  userState
	sp     uint64
	beyond bool // a read of the last step was beyond the copied part of the stack
	// generated is whether the stack has a frame of generated code.
	generated bool
}

// maxStack bounds the size of a stack, in bytes: the default limit of the main thread's.
const maxStack = 8 << 20

// addressBits are the bits of addresses by machine. On arm64, the others may hold the
// signature of a return address.
var addressBits = map[elf.Machine]uint64{elf.EM_AARCH64: 1<<48 - 1}

// newUnwinder returns an unwinder for stacks of a machine, by perf's name for it.
func newUnwinder(arch string, find func(Mapped, elf.Machine) unwind.Code) *unwinder {
	u := &unwinder{find: find, codes: map[*bolt.Binary]unwind.Code{}}
	machine := machineOf(arch)
	u.walker = unwind.Walker{Machine: machine, Find: u.code, Read: u.read, AboveSP: true, PCMask: addressBits[machine]}
	return u
}

// walk returns the frames of a stack of a process with the given layout, innermost first,
// and why they end. There are none if the machine's registers are unknown. The frames are
// valid until the next call.
func (u *unwinder) walk(layout bolt.Layout, state userState) ([]unwind.Frame, stackend.End) {
	regs, ok := state.registers(u.walker.Machine)
	if !ok || state.abi != abi64 {
		return nil, stackend.NoTable // as for all code of such a machine
	}
	u.layout, u.state, u.beyond, u.generated = layout, state, false, false
	u.sp = regs.R[stackPointer[u.walker.Machine]]
	var end stackend.End
	// All callers take at least a word of the stack. Only signal frames that lead back to
	// where the stack has been take more steps.
	u.frames, end = u.walker.Walk(regs, u.frames[:0], 2+len(state.stack)/8)
	return u.frames, u.reason(end)
}

// reason returns the end in a profile.
func (u *unwinder) reason(end stackend.End) stackend.End {
	switch {
	case u.beyond && (end == stackend.Fault || end == stackend.Broken):
		return stackend.Copy
	case end == stackend.Depth:
		return stackend.NotGrowing // see walk
	}
	return end.InProfile()
}

// code implements the walker's Find.
func (u *unwinder) code(addr uint64) (c unwind.Code, bias uint64, ok bool) {
	u.beyond = false // a step begins
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
			c = u.find(Mapped{Path: region.Binary.Name, BuildID: region.Binary.BuildID}, u.walker.Machine)
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

// read implements the walker's Read.
func (u *unwinder) read(addr uint64, buf []byte) bool {
	at, copied := addr-u.sp, uint64(len(u.state.stack))
	if at <= copied && uint64(len(buf)) <= copied-at {
		copy(buf, u.state.stack[at:])
		return true
	}
	// The kernel's copy ends early at a page that it cannot read.
	u.beyond = u.state.full && at < maxStack
	return false
}
