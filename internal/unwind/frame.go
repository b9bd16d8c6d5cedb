package unwind

import (
	"math"
	"slices"
)

// The code of a function without call frame information tells where its frame is: codeFrame is what
// is known at one of its instructions.

// value is what is known of a register, or of a word of the stack.
type value struct {
	kind valueKind
	reg  uint8  // of valueCaller
	base uint32 // of valueAddress
	off  int64  // of valueAddress: from the base. Of the kinds below: an address
}

type valueKind uint8

const (
	valueUnknown valueKind = iota
	// valueConflict is an unknown value that several ways lead to, with different values.
	valueConflict
	// valueCaller is the value that the register reg had at the function's entry.
	valueCaller
	// valueAddress is an address in the stack: the CFA if base is 0, otherwise what the instruction
	// whose number is base made of the stack pointer by an alignment or an allocation, and an offset.
	valueAddress
	// valueConstant is a fixed address. valueChoice is one of several addresses of code: the set with the
	// number base in [codeSets].
	valueConstant
	valueChoice
	// valueEntry is an entry of the table of a switch at a fixed address, and valueTarget is the sum of
	// both: the target of a jump. valuePointer is an entry that is an address itself.
	valueEntry
	valueTarget
	valuePointer
)

// codeRA stands for the return address in valueCaller, beside the registers' numbers in instructions.
const codeRA = 16

// stackSlot is a word of the stack.
type stackSlot struct {
	base  uint32
	off   int64
	value value
}

// maxSlots bounds the words of a frame that are remembered.
const maxSlots = 64

// codeFrame is what is known of a frame. Registers have their numbers in instructions.
type codeFrame struct {
	regs  [16]value
	slots []stackSlot
	// compared describes the last comparison with a constant or of two registers.
	compared comparison
	// bound is 1 more than the largest value of the register boundReg; 0 if unknown.
	bound    int64
	boundReg uint8
	// moved is whether the rule may have changed since it was last asked for.
	moved bool
}

// comparison is a comparison of a register with another one or with a constant.
type comparison struct {
	valid, constant bool
	a, b            uint8
	with            int64
}

// entrySP is the stack pointer at a function's entry.
var entrySP = value{kind: valueAddress, off: -8}

// entryFrame returns the frame at a function's entry.
func entryFrame() codeFrame {
	var f codeFrame
	for i := range f.regs {
		f.regs[i] = value{kind: valueCaller, reg: uint8(i)}
	}
	f.regs[x86SP] = entrySP
	f.slots = []stackSlot{{off: -8, value: value{kind: valueCaller, reg: codeRA}}}
	return f
}

// copyTo copies the frame, and reuses the memory of to.
func (f *codeFrame) copyTo(to *codeFrame) {
	to.slots = append(to.slots[:0], f.slots...)
	slots := to.slots
	*to = *f
	to.slots, to.moved = slots, true
}

// meet keeps in f what is known of both frames. It reports whether f changed.
func (f *codeFrame) meet(g *codeFrame, sets *codeSets) (changed bool) {
	for i := range f.regs {
		if f.regs[i].kind == valueConflict || f.regs[i] == g.regs[i] {
			continue
		}
		if v := sets.join(f.regs[i], g.regs[i]); v != f.regs[i] {
			f.regs[i] = v
			changed = true
		}
	}
	n := len(f.slots)
	f.slots = slices.DeleteFunc(f.slots, func(s stackSlot) bool { return g.at(s.base, s.off) != s.value })
	changed = changed || len(f.slots) != n
	if f.compared.valid && f.compared != g.compared {
		f.compared = comparison{}
		changed = true
	}
	if f.bound != 0 && (f.bound != g.bound || f.boundReg != g.boundReg) {
		f.bound = 0
		changed = true
	}
	return changed
}

// codeSets holds sets of addresses of code that a register may have. Hand-written code jumps to labels that
// it has loaded earlier.
type codeSets struct {
	// isCode reports whether an address may be a label.
	isCode func(addr uint64) bool
	sets   [][]uint64 // sorted
}

// maxChoices bounds the addresses of a set, and maxCodeSets the sets of a function.
const maxChoices, maxCodeSets = 16, 1 << 10

// choices returns the addresses that v may be, or nil if they are not known or no code.
func (s *codeSets) choices(v value) []uint64 {
	switch {
	case v.kind == valueChoice:
		return s.sets[v.base]
	case v.kind == valueConstant && s.isCode(uint64(v.off)):
		return []uint64{uint64(v.off)}
	}
	return nil
}

// join returns what is known of a value that is v or w.
func (s *codeSets) join(v, w value) value {
	a, b := s.choices(v), s.choices(w)
	if a == nil || b == nil {
		return value{kind: valueConflict}
	}
	both := slices.Concat(a, b)
	slices.Sort(both)
	both = slices.Compact(both)
	i := slices.IndexFunc(s.sets, func(set []uint64) bool { return slices.Equal(set, both) })
	if i < 0 {
		if len(both) > maxChoices || len(s.sets) == maxCodeSets {
			return value{kind: valueConflict}
		}
		i = len(s.sets)
		s.sets = append(s.sets, both)
	}
	return value{kind: valueChoice, base: uint32(i)}
}

// at returns the word of the stack at an address.
func (f *codeFrame) at(base uint32, off int64) value {
	for i := range f.slots {
		if s := &f.slots[i]; s.base == base && s.off == off {
			return s.value
		}
	}
	return value{}
}

// store sets size bytes of the stack at an address to v, which is unknown unless size is 8.
func (f *codeFrame) store(to value, size int64, v value) {
	if to.kind != valueAddress {
		return
	}
	f.moved = true
	f.slots = slices.DeleteFunc(f.slots, func(s stackSlot) bool {
		return s.base == to.base && s.off < to.off+size && to.off < s.off+8
	})
	if v.kind > valueConflict && len(f.slots) < maxSlots {
		f.slots = append(f.slots, stackSlot{to.base, to.off, v})
	}
}

// load returns the word of the stack at an address.
func (f *codeFrame) load(from value) value {
	if from.kind != valueAddress {
		return value{}
	}
	return f.at(from.base, from.off)
}

// set sets a register.
func (f *codeFrame) set(reg uint8, v value) {
	if old := f.regs[reg]; old != v {
		f.moved = f.moved || old.isPlace() || v.isPlace() || reg == x86SP || reg == x86FP
		f.regs[reg] = v
	}
	if f.compared.valid && (f.compared.a == reg || !f.compared.constant && f.compared.b == reg) {
		f.compared = comparison{}
	}
	if f.boundReg == reg {
		f.bound = 0
	}
}

// rebase sets the stack pointer to a new base, whose number is base. What was known of the last one with
// this number, in another turn of a loop, is forgotten.
func (f *codeFrame) rebase(reg uint8, base uint32) {
	for i := range f.regs {
		if f.regs[i].kind == valueAddress && f.regs[i].base == base {
			f.set(uint8(i), value{})
		}
	}
	f.moved = true
	f.slots = slices.DeleteFunc(f.slots, func(s stackSlot) bool {
		return s.base == base || s.value.kind == valueAddress && s.value.base == base
	})
	f.set(reg, value{kind: valueAddress, base: base})
}

// push pushes a value.
func (f *codeFrame) push(v value) {
	f.move(-8)
	f.store(f.regs[x86SP], 8, v)
}

// move adds to the stack pointer.
func (f *codeFrame) move(n int64) {
	if sp := f.regs[x86SP]; sp.kind == valueAddress {
		sp.off += n
		f.set(x86SP, sp)
	} else {
		f.set(x86SP, value{})
	}
}

// called forgets what a call changes.
func (f *codeFrame) called() {
	for _, reg := range [...]uint8{0, 1, 2, 6, 7, 8, 9, 10, 11} {
		f.set(reg, value{})
	}
	f.compared, f.bound = comparison{}, 0
	f.moved = true
	if sp := f.regs[x86SP]; sp.kind == valueAddress {
		f.slots = slices.DeleteFunc(f.slots, func(s stackSlot) bool { return s.base == sp.base && s.off < sp.off })
	}
}

// isSetUp reports whether the frame pointer is set up as compilers do.
func (f *codeFrame) isSetUp() bool {
	fp := f.regs[x86FP]
	return isFromCFA(fp) && fp.off == -16 && f.at(0, -16) == value{kind: valueCaller, reg: x86FP}
}

// isPlace reports whether a rule may depend on v.
func (v value) isPlace() bool {
	return v.kind == valueAddress || v.kind == valueCaller && (v.reg == codeRA || v.reg == x86FP || v.reg == x86Base)
}

// isFromCFA reports whether v is a known distance from the CFA.
func isFromCFA(v value) bool { return v.kind == valueAddress && v.base == 0 }

// exit tells what is wrong with a frame in which the function is left.
type exit uint8

const (
	exitUnknown exit = iota
	exitGood         // the stack pointer and the caller's registers are as at the entry
	exitBad          // the stack pointer is not
)

// savedRegisters are those that a function leaves as they are: rbx, rbp and r12 to r15.
var savedRegisters = [...]uint8{x86Base, x86FP, 12, 13, 14, 15}

// exit returns how a function is left in this frame.
func (f *codeFrame) exit() exit {
	sp := f.regs[x86SP]
	if !isFromCFA(sp) {
		return exitUnknown
	}
	if sp.off != -8 {
		return exitBad
	}
	how := exitGood
	if f.at(0, -8) != (value{kind: valueCaller, reg: codeRA}) {
		how = exitUnknown // a jump by a return instruction
	}
	for _, reg := range savedRegisters {
		if f.regs[reg] != (value{kind: valueCaller, reg: reg}) {
			how = exitUnknown // generated code may keep none
		}
	}
	return how
}

// numbersInDWARF maps the numbers of registers in instructions to those of DWARF.
var numbersInDWARF = [...]uint8{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}

// rule returns the rule of the frame, or the zero rule if the CFA or the return address is not known.
func (f *codeFrame) rule() Rule {
	var r Rule
	if !f.cfa(&r) || !f.returnAddress(&r) {
		return Rule{}
	}
	f.framePointer(&r)
	if r.Kind == KindSP || r.Kind == KindFP {
		r.Arg = f.base()
	}
	return r
}

// cfa fills in the CFA. The frame pointer comes first, since called functions may take their arguments
// from the stack. If the ways to the code disagree on the stack pointer, one of them may not exist: then only
// a frame pointer counts that was set up as compilers do.
func (f *codeFrame) cfa(r *Rule) bool {
	sp, fp := f.regs[x86SP], f.regs[x86FP]
	switch {
	case sp.kind == valueConflict && !f.isSetUp():
		return false
	case isFromCFA(fp):
		return setCFA(r, KindFP, 0, -fp.off)
	case isFromCFA(sp):
		return setCFA(r, KindSP, 0, -sp.off)
	case f.derefCFA(r, KindDerefFP, fp), f.derefCFA(r, KindDerefSP, sp):
		return true
	}
	for i, v := range f.regs {
		if isFromCFA(v) {
			return setCFA(r, KindRegister, numbersInDWARF[i], -v.off)
		}
	}
	return false
}

// derefCFA fills in the CFA if a word of the frame that v points to has it.
func (f *codeFrame) derefCFA(r *Rule, k Kind, v value) bool {
	if v.kind != valueAddress {
		return false
	}
	sp := f.regs[x86SP]
	for i := range f.slots {
		s := &f.slots[i]
		if sp.base == s.base && s.off < sp.off {
			continue // released
		}
		if s.base == v.base && isFromCFA(s.value) && s.value.off <= 0 && s.value.off >= -math.MaxUint8 {
			return setCFA(r, k, uint8(-s.value.off), s.off-v.off)
		}
	}
	return false
}

// maxCodeFrame bounds the size of a frame, in bytes.
const maxCodeFrame = 1 << 30

func setCFA(r *Rule, k Kind, arg uint8, off int64) bool {
	r.Kind, r.Arg, r.CFA = k, arg, int32(off)
	return off >= -maxCodeFrame && off <= maxCodeFrame
}

// returnAddress fills in the place of the return address.
func (f *codeFrame) returnAddress(r *Rule) bool {
	ra := value{kind: valueCaller, reg: codeRA}
	sp := f.regs[x86SP]
	if f.at(0, -8) == ra && !(isFromCFA(sp) && sp.off > -8) {
		r.RASlot, r.RA = SlotCFA, -8
		return true
	}
	return f.inRegister(ra, &r.RASlot, &r.RA)
}

// inRegister fills in a slot if a register has v.
func (f *codeFrame) inRegister(v value, slot *Slot, off *int32) bool {
	for i, got := range f.regs {
		if got == v {
			*slot, *off = SlotRegister, int32(numbersInDWARF[i])
			return true
		}
	}
	return false
}

// framePointer fills in the place of the caller's frame pointer.
func (f *codeFrame) framePointer(r *Rule) {
	want := value{kind: valueCaller, reg: x86FP}
	if f.regs[x86FP] == want {
		return
	}
	for i := range f.slots {
		s := &f.slots[i]
		if s.value != want {
			continue
		}
		switch {
		case s.base == 0:
			r.FPSlot, r.FP = SlotCFA, int32(s.off)
			return
		case f.regs[x86FP].kind == valueAddress && f.regs[x86FP].base == s.base:
			r.FPSlot, r.FP = SlotFP, int32(s.off-f.regs[x86FP].off)
			return
		case f.regs[x86SP].kind == valueAddress && f.regs[x86SP].base == s.base:
			r.FPSlot, r.FP = SlotSP, int32(s.off-f.regs[x86SP].off)
			return
		}
	}
	if !f.inRegister(want, &r.FPSlot, &r.FP) {
		r.FPSlot = SlotUnknown
	}
}

// base returns the Rule.Arg for the base register.
func (f *codeFrame) base() uint8 {
	want := value{kind: valueCaller, reg: x86Base}
	if f.regs[x86Base] == want {
		return 0
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.value == want && s.base == 0 && s.off < 0 && s.off%8 == 0 && s.off > -8*BaseLost {
			return uint8(-s.off / 8)
		}
	}
	return BaseLost
}
