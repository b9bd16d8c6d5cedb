package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"fulgur/internal/unwind/stackend"
)

// Registers are the user registers of a thread.
type Registers struct {
	PC uint64
	// R holds the general-purpose registers by DWARF number, including the stack pointer.
	R [maxRegister]uint64
	// TP is the thread pointer, which leads to thread-local variables; 0 if unknown. Only
	// amd64's is used.
	TP uint64
}

// Frame is a frame of a stack.
type Frame struct {
	PC uint64
	// Exact is whether PC is the next instruction to execute, as in the innermost frame
	// and in a frame that a signal interrupted. Otherwise it is a return address: the
	// call is before it, and may be the last instruction of its function.
	Exact bool
}

// Lookup returns the address to look up in tables and symbols.
func (f Frame) Lookup() uint64 {
	if f.Exact {
		return f.PC
	}
	return f.PC - 1
}

// Walker walks stacks of an address space. It is the reference for the kernel's walker,
// which takes the same steps.
type Walker struct {
	// Machine is elf.EM_X86_64 or elf.EM_AARCH64.
	Machine elf.Machine
	// Find returns the code at an address, and the bias to subtract from the address to get the
	// link-time address. ok is false if no code is mapped there.
	Find func(addr uint64) (c Code, bias uint64, ok bool)
	// Read fills buf from the memory at addr, and reports whether it could.
	Read func(addr uint64, buf []byte) bool
	// AboveSP means that Read has only memory above the stack pointer, as in a copy of a
	// stack. The walker then assumes that a register saved below it is already restored: a
	// function restores registers before it releases their memory.
	AboveSP bool
	// Stepped, if not nil, is called with the stack pointer in each frame, and with the one after the last frame if
	// that is known.
	Stepped func(sp uint64)
	// PCMask holds the bits that an address can have; 0 means all. On arm64, the other
	// bits may hold a signature of return addresses.
	PCMask uint64
}

// cursor is the state of a walk.
type cursor struct {
	*Walker
	arch *arch
	regs Registers
	// exact is whether all registers in regs are known: in the innermost frame and in a
	// frame that a signal interrupted. Otherwise only the program counter, stack pointer
	// and frame pointer are known, and the program counter is a return address. Registers
	// that calls may change keep the values of the last exact frame.
	exact bool
	// departed is whether the walk went elsewhere than to a caller since the last exact frame.
	departed bool
	// doubtful is whether the step depends on a register that a call may have changed.
	doubtful bool
	// base is whether the base register is known even if exact is false.
	base bool
	// unsureSP is whether the stack pointer may be below its value in the frame, see [cursor.leadsToSP].
	unsureSP bool
}

// Walk appends up to limit frames of a thread to frames, innermost first, and returns why
// they end.
func (w *Walker) Walk(regs Registers, frames []Frame, limit int) ([]Frame, stackend.End) {
	c := cursor{Walker: w, arch: archOf(w.Machine), regs: regs, exact: true, base: true}
	if c.arch == nil {
		return frames, stackend.NoTable
	}
	for range limit {
		f := Frame{PC: c.regs.PC, Exact: c.exact}
		frames = append(frames, f)
		c.stepped()
		code, bias, ok := w.Find(f.Lookup())
		if !ok {
			return frames, stackend.NoMapping
		}
		if end, more := c.step(code.Rule(f.Lookup() - bias)); !more {
			return frames, end
		}
		// Threads start with 0. But a signal may have interrupted a jump to address 0.
		if c.regs.PC == 0 && !c.exact {
			c.stepped()
			return frames, stackend.Complete
		}
	}
	return frames, stackend.Depth
}

func (c *cursor) stepped() {
	if c.Stepped != nil {
		c.Stepped(c.regs.R[c.arch.sp])
	}
}

// step moves to the caller by a rule, or returns why it cannot.
func (c *cursor) step(r Rule) (end stackend.End, more bool) {
	if c.unsureSP && !c.leadsToSP(r) {
		return stackend.Register, false
	}
	switch r.Kind {
	case KindNone, KindUnread:
		return stackend.NoTable, false
	case KindChain:
		return c.chain(r)
	case KindUnsupported:
		return stackend.Unsupported, false
	case KindEnd:
		return stackend.Complete, false
	case KindSignal:
		return c.signal(r)
	case KindGoroutine:
		return c.goroutine(r)
	}
	c.doubtful = false
	cfa, end, ok := c.cfa(r)
	if !ok {
		return end, false
	}
	// The caller's frame is above this one. Their stack pointers may be equal only if the
	// function was interrupted before it used the stack.
	sp := c.regs.R[c.arch.sp]
	if (cfa < sp || cfa == sp && !c.exact) && r.Kind != KindSwitch {
		return stackend.NotGrowing, false
	}
	// Load the frame pointer before the return address, since it is below. In this order, a
	// walker that reads blocks needs the fewest reads.
	fp, end, ok := c.load(c.arch.fp, r.FPSlot, r.FP, cfa)
	if !ok {
		return end, false
	}
	// A call left the return address in the link register, whose value is known only in
	// an interrupted frame.
	if r.RASlot == SlotSame && !c.exact {
		return stackend.Register, false
	}
	pc, end, ok := c.load(c.arch.ra, r.RASlot, r.RA, cfa)
	if !ok {
		return end, false
	}
	if pc = c.strip(pc); c.doubtful && !c.followsCall(pc) {
		return stackend.Register, false
	}
	c.restoreBase(r, cfa)
	c.regs.PC, c.regs.R[c.arch.sp], c.regs.R[c.arch.fp] = pc, cfa, fp
	c.exact, c.unsureSP = false, false
	return 0, true
}

// lowest is an address below which no memory is mapped, whatever mmap_min_addr is.
const lowest = 4096

// chain moves to the caller by the frame pointer. If code uses the register for something else, it rarely holds
// the address of a frame.
func (c *cursor) chain(r Rule) (end stackend.End, more bool) {
	sp, fp, stacks := c.regs.R[c.arch.sp], c.regs.R[c.arch.fp], r.Arg == ChainStacks
	cfa := fp + uint64(int64(r.CFA))
	switch {
	case fp == 0:
		return stackend.FramePointer, false
	case fp < lowest || fp&7 != 0 || fp < sp && !stacks:
		return stackend.Broken, false
	case cfa < sp && !stacks:
		return stackend.NotGrowing, false
	}
	saved, ok := c.word(fp)
	if !ok {
		return stackend.Broken, false
	}
	pc, ok := c.word(fp + 8)
	if !ok {
		return stackend.Broken, false
	}
	c.regs.PC, c.regs.R[c.arch.sp], c.regs.R[c.arch.fp] = c.strip(pc), cfa, saved
	c.exact, c.base = false, false
	c.unsureSP = c.arch.link && r.Arg != ChainAtEnd
	if c.regs.PC == 0 { // threads start with 0, but it may not have been a frame pointer
		return stackend.FramePointer, false
	}
	return 0, true
}

// leadsToSP reports whether the stack pointer is known if a rule needs it, after a step by frame pointers on
// arm64. There, the frame record to which a frame pointer points can be anywhere in its frame. So the step shows
// only that the caller's frame is above the callee's frame record. The stack pointer is known if that record is at
// the end of the callee's frame: then the caller's rule leads to the caller's own frame record.
func (c *cursor) leadsToSP(r Rule) bool {
	switch r.Kind {
	case KindSP:
		cfa := c.regs.R[c.arch.sp] + uint64(int64(r.CFA))
		return r.FPSlot == SlotCFA && cfa+uint64(int64(r.FP)) == c.regs.R[c.arch.fp]
	case KindPLT, KindDerefSP, KindIndexed, KindSignal:
		return false
	}
	return r.FPSlot != SlotSP && r.RASlot != SlotSP
}

// register returns a register of the frame, if it is known. No rule says where a register that
// calls may change is saved.
func (c *cursor) register(n uint64) (v uint64, ok bool) {
	n %= maxRegister
	if !c.exact {
		if c.departed || c.arch.scratch>>n&1 == 0 {
			return 0, false
		}
		c.doubtful = true
	}
	return c.regs.R[n], true
}

// followsCall reports whether a call is before the address pc, or its code cannot be read.
func (c *cursor) followsCall(pc uint64) bool {
	var code [8]byte
	if !c.Read(pc-8, code[:]) {
		return true
	}
	if c.arch.link { // bl, and variants of blr
		return code[7]&0xfc == 0x94 || code[7]&0xfe == 0xd6 && code[6] == 0x3f
	}
	if code[3] == 0xe8 { // a relative call
		return true
	}
	for i := 1; i < 7; i++ { // an indirect call, of any length
		if code[i] == 0xff && code[i+1]&0x38 == 0x10 {
			return true
		}
	}
	return false
}

// restoreBase sets the base register to its value in the caller.
func (c *cursor) restoreBase(r Rule, cfa uint64) {
	switch r.Kind {
	case KindSP, KindFP:
		switch r.Arg {
		case 0:
		case BaseLost:
			c.base = false
		default:
			base := c.arch.base % maxRegister
			c.regs.R[base], c.base = c.saved(base, cfa-8*uint64(r.Arg))
		}
	case KindPLT: // does not change it
	default:
		c.base = false
	}
}

// cfa computes the CFA by a rule.
func (c *cursor) cfa(r Rule) (cfa uint64, end stackend.End, ok bool) {
	sp, fp := c.regs.R[c.arch.sp], c.regs.R[c.arch.fp]
	off := uint64(int64(r.CFA))
	switch r.Kind {
	case KindSP:
		return sp + off, 0, true
	case KindFP:
		return fp + off, 0, true
	case KindSwitch:
		return fp + off, stackend.Complete, fp != 0
	case KindRegister:
		if c.base && uint64(r.Arg) == c.arch.base {
			return c.regs.R[r.Arg] + off, 0, true
		}
		v, ok := c.register(uint64(r.Arg))
		return v + off, stackend.Register, ok
	case KindIndexed:
		v, ok := c.register(uint64(r.Arg))
		if !ok {
			return 0, stackend.Register, false
		}
		cfa, ok = c.word(sp + off + 8*v)
		return cfa + 8, stackend.Fault, ok
	case KindPLT:
		cfa = sp + off
		if c.regs.PC&15 >= uint64(r.Arg) {
			cfa += 8
		}
		return cfa, 0, true
	case KindDerefSP:
		cfa, ok = c.word(sp + off)
	case KindDerefFP:
		cfa, ok = c.word(fp + off)
	}
	return cfa + uint64(r.Arg), stackend.Fault, ok
}

// load returns the caller's value of a register, from its slot.
func (c *cursor) load(reg uint64, s Slot, off int32, cfa uint64) (v uint64, end stackend.End, ok bool) {
	at := uint64(int64(off))
	switch s {
	case SlotSame:
		return c.regs.R[reg], 0, true
	case SlotUnknown:
		return 0, 0, true // the next lookup fails if it is used
	case SlotRegister:
		v, ok = c.register(uint64(off))
		return v, stackend.Register, ok
	case SlotCFA:
		at += cfa
	case SlotSP:
		at += c.regs.R[c.arch.sp]
	case SlotFP:
		at += c.regs.R[c.arch.fp]
	}
	v, ok = c.saved(reg, at)
	return v, stackend.Fault, ok
}

// saved returns the value of a register that was saved at an address.
func (c *cursor) saved(reg, at uint64) (v uint64, ok bool) {
	isRegister := reg != c.arch.ra || c.arch.link
	if c.AboveSP && c.exact && isRegister && at < c.regs.R[c.arch.sp] {
		return c.regs.R[reg], true
	}
	return c.word(at)
}

// signal moves to the code that a signal interrupted. It may run on another stack
// (sigaltstack), so its stack address is not checked.
func (c *cursor) signal(r Rule) (end stackend.End, more bool) {
	f := &c.arch.signal
	at := c.regs.R[c.arch.sp] + uint64(int64(r.CFA)) + uint64(f.first)
	buf := make([]byte, 8*len(f.regs))
	if !c.Read(at, buf) {
		return stackend.Fault, false
	}
	for i, reg := range f.regs {
		v := binary.LittleEndian.Uint64(buf[8*i:])
		if reg == pcRegister {
			c.regs.PC = v
		} else {
			c.regs.R[reg] = v
		}
	}
	c.exact, c.base, c.departed, c.unsureSP = true, true, false, false
	return 0, true
}

// Offsets in Go's runtime.g of m and of sched.sp, which sched.pc follows.
const (
	goM     = 48
	goSched = 56
)

// goroutine moves from the function with which Go switches to the thread's own stack, to grow a
// goroutine's, to the function that needs more stack. The goroutine's registers are in its g
// meanwhile. A thread without a goroutine has moved on to look for another one.
func (c *cursor) goroutine(r Rule) (end stackend.End, more bool) {
	if c.regs.TP == 0 {
		return stackend.Fault, false
	}
	known := true
	load := func(addr uint64) uint64 {
		v, ok := c.word(addr)
		known = known && ok
		return v
	}
	m := load(load(c.regs.TP+uint64(int64(r.CFA))) + goM)
	g := load(m + uint64(int64(r.FP)))
	switch {
	case !known:
		return stackend.Fault, false
	case g == 0:
		return stackend.Complete, false
	}
	back, sp, pc, fp := load(g+goM), load(g+goSched), load(g+goSched+8), load(g+uint64(int64(r.RA)))
	// The layout of these structures may be another one.
	if !known || back != m || sp == 0 || pc == 0 {
		return stackend.Unsupported, false
	}
	c.regs.PC, c.regs.R[c.arch.sp], c.regs.R[c.arch.fp] = c.strip(pc), sp, fp
	c.exact, c.base, c.departed, c.unsureSP = false, false, true, false
	return 0, true
}

func (c *cursor) word(addr uint64) (uint64, bool) {
	var buf [8]byte
	ok := c.Read(addr, buf[:])
	return binary.LittleEndian.Uint64(buf[:]), ok
}

func (c *cursor) strip(pc uint64) uint64 {
	if c.PCMask != 0 {
		return pc & c.PCMask
	}
	return pc
}

// String returns the frame as "0x401136", or as "<-0x401136" for a return address.
func (f Frame) String() string {
	if f.Exact {
		return fmt.Sprintf("%#x", f.PC)
	}
	return fmt.Sprintf("<-%#x", f.PC)
}
