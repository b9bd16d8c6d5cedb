package unwind

import (
	"math"
	"slices"

	"fulgur/internal/symbols/instruction"
)

// The code of a function without call frame information tells where its frame is: codeFrame is what
// is known at one of its instructions.

// isa describes the instructions of a machine to the analysis of code. Registers have their numbers in
// instructions.
type isa struct {
	instructionSet
	// sp is the stack pointer, and fp the frame pointer. ra is the register with the return address at a
	// function's entry, or stands for the return address if that is on the stack. base is the psABI's base
	// pointer, or noBase.
	sp, fp, ra, base uint8
	// dwarf has the registers' numbers in DWARF.
	dwarf []uint8
	// entry is the stack pointer at a function's entry: its distance from the CFA. If link is not set, the
	// return address is there.
	entry int64
	link  bool
	// scratch lists the registers that a call may change, and saved those that a function leaves as they are.
	scratch, saved []uint8
	// step is the alignment of instructions, in bytes.
	step uint64
	// pairs is whether two instructions together make an address.
	pairs bool
	// relative and irelative are the types of relocations of addresses in the file.
	relative, irelative uint32
}

// noBase means that a machine has no base pointer.
const noBase = 0xff

// instructionSet tells what instructions do.
type instructionSet interface {
	// decode decodes the instruction at the beginning of code. ok is false for what compilers do not make.
	// The size is 0 if the next instruction is not known, either.
	decode(code []byte, at uint64) (in instruction.Instruction, ok bool)
	// execute changes the frame as an instruction does that does not branch. number identifies it. It adds
	// the Reference of one that completes an address.
	execute(f *codeFrame, in *instruction.Instruction, code []byte, number uint32)
	// branched notes the outcome of a conditional jump.
	branched(f *codeFrame, in *instruction.Instruction, jumped bool)
	// target returns what is known of the target of an indirect jump.
	target(f *codeFrame, in *instruction.Instruction) value
	// called changes the frame as the call of the next instruction does.
	called(f *codeFrame)
	// isReady reports whether a function would make a call, which has returned, in this frame.
	isReady(f *codeFrame) bool
	// refers reports whether code may have an instruction with an address for which isGap holds, which is
	// asked about ranges of addresses that overlap the one from low to high. It is faster than decoding.
	refers(code []byte, at, low, high uint64, isGap func(from, to uint64) bool) bool
	// endsWithPadding reports whether code, of 16 bytes, ends with an instruction that compilers use as padding.
	endsWithPadding(code []byte) bool
	// isPadding reports whether an instruction has no effect.
	isPadding(code []byte) bool
	// restored finds the end of a function: if code begins with an instruction that restores the frame pointer, and
	// leads to a return instruction, it returns where the frame is not known from there on, where it is as at the entry, and
	// the end, in bytes. Otherwise, end is 0.
	restored(code []byte) (released, leaf, end int)
}

// value is what is known of a register, or of a word of the stack.
type value struct {
	kind valueKind
	reg  uint8  // of valueCaller
	n    uint16 // of valueEntry and valueTarget: the number of entries
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
	// valueEntry is an entry of the table of a switch at a fixed address. reg is its tableFormat.
	valueEntry
	// valueTarget is an entry as the target of a jump, from an address that is base bytes from the table.
	valueTarget
)

// tableFormat describes the entries of the table of a switch: the logarithm of their size, and the flags below.
type tableFormat uint8

const (
	tableSize     tableFormat = 3      // bits of the size
	tableSigned   tableFormat = 1 << 2 // extended by their sign
	tableWords    tableFormat = 1 << 3 // distances in units of 4 bytes
	tableAbsolute tableFormat = 1 << 4 // addresses, not distances
)

// target returns the address to which an entry leads.
func (v value) target(entry uint64) uint64 {
	f := tableFormat(v.reg)
	if f&tableAbsolute != 0 {
		return entry
	}
	if f&tableSigned != 0 {
		shift := 64 - 8<<(f&tableSize)
		entry = uint64(int64(entry<<shift) >> shift)
	}
	if f&tableWords != 0 {
		entry *= 4
	}
	return uint64(v.off) + uint64(int64(int32(v.base))) + entry
}

// stackSlot is a word of the stack.
type stackSlot struct {
	base  uint32
	off   int64
	value value
}

// maxSlots bounds the words of a frame that are remembered.
const maxSlots = 64

// maxISARegisters bounds the registers of a machine.
const maxISARegisters = 32

// codeFrame is what is known of a frame. Registers have their numbers in instructions.
type codeFrame struct {
	isa   *isa
	regs  [maxISARegisters]value
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

// entryFrame returns the frame at a function's entry.
func (m *isa) entryFrame() codeFrame {
	f := codeFrame{isa: m}
	for i := range m.dwarf {
		f.regs[i] = value{kind: valueCaller, reg: uint8(i)}
	}
	f.regs[m.sp] = value{kind: valueAddress, off: m.entry}
	if !m.link {
		f.slots = []stackSlot{{off: m.entry, value: f.caller(m.ra)}}
	}
	return f
}

// caller returns the value that a register had at the function's entry.
func (f *codeFrame) caller(reg uint8) value { return value{kind: valueCaller, reg: reg} }

// isAtEntry reports whether the stack pointer is as at the function's entry.
func (f *codeFrame) isAtEntry() bool {
	sp := f.regs[f.isa.sp]
	return isFromCFA(sp) && sp.off == f.isa.entry
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
	for i := range f.isa.dwarf {
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
		f.moved = f.moved || f.isPlace(old) || f.isPlace(v) || reg == f.isa.sp || reg == f.isa.fp
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
	for i := range f.isa.dwarf {
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

// called forgets what a call changes.
func (f *codeFrame) called() {
	for _, reg := range f.isa.scratch {
		f.set(reg, value{})
	}
	f.compared, f.bound = comparison{}, 0
	f.moved = true
	f.slots = slices.DeleteFunc(f.slots, func(s stackSlot) bool { return f.isReleased(&s) })
}

// isReleased reports whether a word is below the stack pointer.
func (f *codeFrame) isReleased(s *stackSlot) bool {
	sp := f.regs[f.isa.sp]
	return sp.kind == valueAddress && s.base == sp.base && s.off < sp.off
}

// isSetUp reports whether the frame pointer is set up as compilers do: it points to the caller's, below
// the return address.
func (f *codeFrame) isSetUp() bool {
	fp := f.regs[f.isa.fp]
	return isFromCFA(fp) && fp.off >= -maxCodeFrame && f.at(0, fp.off) == f.caller(f.isa.fp) && f.at(0, fp.off+8) == f.caller(f.isa.ra)
}

// setUpRule returns the rule of a frame for which isSetUp holds. It needs only the frame pointer.
func (f *codeFrame) setUpRule() Rule {
	off := int32(f.regs[f.isa.fp].off)
	return Rule{Kind: KindFP, CFA: -off, FPSlot: SlotCFA, FP: off, RASlot: SlotCFA, RA: off + 8}
}

// isPlace reports whether a rule may depend on v.
func (f *codeFrame) isPlace(v value) bool {
	return v.kind == valueAddress || v.kind == valueCaller && (v.reg == f.isa.ra || v.reg == f.isa.fp || v.reg == f.isa.base)
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

// exit returns how a function is left in this frame.
func (f *codeFrame) exit() exit {
	if !isFromCFA(f.regs[f.isa.sp]) {
		return exitUnknown
	}
	if !f.isAtEntry() {
		return exitBad
	}
	how := exitGood
	ra := f.regs[f.isa.ra]
	if !f.isa.link {
		ra = f.at(0, f.isa.entry)
	}
	if ra != f.caller(f.isa.ra) {
		how = exitUnknown // a jump by a return instruction
	}
	for _, reg := range f.isa.saved {
		if f.regs[reg] != f.caller(reg) {
			how = exitUnknown // generated code may keep none
		}
	}
	return how
}

// outcome is what a branch tells of the operands of the last comparison.
type outcome uint8

const (
	outcomeUnknown outcome = iota
	outcomeBelow
	outcomeBelowOrEqual
	outcomeEqual
)

// learn notes the outcome of the last comparison.
func (f *codeFrame) learn(o outcome) {
	c := f.compared
	switch {
	case !c.valid:
	case c.constant:
		limit := c.with
		if o == outcomeBelowOrEqual {
			limit++
		}
		if o >= outcomeBelow && o <= outcomeBelowOrEqual && limit > 0 {
			f.bound, f.boundReg = limit, c.a
		}
	case o == outcomeEqual:
		a, b := c.a, c.b
		if a == f.isa.sp { // which a loop moves to the value of the other one
			a, b = b, a
		}
		if !isFromCFA(f.regs[a]) {
			a, b = b, a
		}
		if v := f.regs[a]; isFromCFA(v) {
			f.regs[b], f.moved = v, true
		}
	}
}

// compare notes a comparison.
func (f *codeFrame) compare(c comparison) {
	f.compared = comparison{}
	if c.valid {
		f.compared = c
	}
}

// moveBound moves the low half of a register to another one, whose value then has the same bound.
func (f *codeFrame) moveBound(to, from uint8) {
	bound, has := f.bound, f.boundReg == from
	f.set(to, value{})
	if has {
		f.bound, f.boundReg = bound, to
	}
}

// tableEntry returns the value of a register into which an instruction loads an entry of a table.
func (f *codeFrame) tableEntry(table uint64, index uint8, format tableFormat) value {
	if f.bound == 0 || f.boundReg != index {
		return value{}
	}
	v := value{kind: valueEntry, reg: uint8(format), n: uint16(min(f.bound, maxTable)), off: int64(table)}
	if format&tableAbsolute != 0 {
		v.kind = valueTarget
	}
	return v
}

// rule returns the rule of the frame, or the zero rule if the CFA or the return address is not known.
func (f *codeFrame) rule() Rule {
	var r Rule
	if !f.cfa(&r) || !f.returnAddress(&r) {
		return Rule{}
	}
	if fp := f.caller(f.isa.fp); f.regs[f.isa.fp] != fp && !f.place(fp, &r.FPSlot, &r.FP) {
		r.FPSlot = SlotUnknown
	}
	if r.Kind == KindSP || r.Kind == KindFP {
		r.Arg = f.base()
	}
	return r
}

// cfa fills in the CFA. The frame pointer comes first, since called functions may take their arguments
// from the stack. If the ways to the code disagree on the stack pointer, one of them may not exist: then only
// a frame pointer counts that was set up as compilers do.
func (f *codeFrame) cfa(r *Rule) bool {
	sp, fp := f.regs[f.isa.sp], f.regs[f.isa.fp]
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
	for i, n := range f.isa.dwarf {
		if v := f.regs[i]; isFromCFA(v) {
			return setCFA(r, KindRegister, n, -v.off)
		}
	}
	return false
}

// derefCFA fills in the CFA if a word of the frame that v points to has it.
func (f *codeFrame) derefCFA(r *Rule, k Kind, v value) bool {
	if v.kind != valueAddress {
		return false
	}
	for i := range f.slots {
		s := &f.slots[i]
		if s.base == v.base && !f.isReleased(s) && isFromCFA(s.value) && s.value.off <= 0 && s.value.off >= -math.MaxUint8 {
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

// returnAddress fills in the place of the return address. The memory comes first, since a call changes the
// registers.
func (f *codeFrame) returnAddress(r *Rule) bool {
	ra := f.caller(f.isa.ra)
	return f.place(ra, &r.RASlot, &r.RA) || f.isa.link && f.regs[f.isa.ra] == ra
}

// place fills in a slot if a word of the frame, or another register than that of the same name, has v.
func (f *codeFrame) place(v value, slot *Slot, off *int32) bool {
	fp, sp := f.regs[f.isa.fp], f.regs[f.isa.sp]
	for i := range f.slots {
		s := &f.slots[i]
		if s.value != v || f.isReleased(s) {
			continue
		}
		switch {
		case s.base == 0:
			*slot, *off = SlotCFA, int32(s.off)
		case fp.kind == valueAddress && fp.base == s.base:
			*slot, *off = SlotFP, int32(s.off-fp.off)
		case sp.kind == valueAddress && sp.base == s.base:
			*slot, *off = SlotSP, int32(s.off-sp.off)
		default:
			continue
		}
		return true
	}
	for i, n := range f.isa.dwarf {
		if f.regs[i] == v && v.reg != uint8(i) {
			*slot, *off = SlotRegister, int32(n)
			return true
		}
	}
	return false
}

// base returns the Rule.Arg for the base register.
func (f *codeFrame) base() uint8 {
	if f.isa.base == noBase {
		return 0
	}
	want := f.caller(f.isa.base)
	if f.regs[f.isa.base] == want {
		return 0
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.value == want && s.base == 0 && s.off < 0 && s.off%8 == 0 && s.off > -8*BaseLost {
			return uint8(-s.off / 8)
		}
	}
	return BaseLost
}
