package unwind

import (
	"math"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/dwarfdata"
)

// The instructions of call frame programs (DWARF 5, 7.24), including vendor extensions.
// The first three hold an operand in their low six bits.
const (
	cfaAdvanceLoc = 0x40
	cfaOffset     = 0x80
	cfaRestore    = 0xc0

	cfaNop              = 0x00
	cfaSetLoc           = 0x01
	cfaAdvanceLoc1      = 0x02
	cfaAdvanceLoc2      = 0x03
	cfaAdvanceLoc4      = 0x04
	cfaOffsetExtended   = 0x05
	cfaRestoreExtended  = 0x06
	cfaUndefined        = 0x07
	cfaSameValue        = 0x08
	cfaRegister         = 0x09
	cfaRememberState    = 0x0a
	cfaRestoreState     = 0x0b
	cfaDefCFA           = 0x0c
	cfaDefCFARegister   = 0x0d
	cfaDefCFAOffset     = 0x0e
	cfaDefCFAExpression = 0x0f
	cfaExpression       = 0x10
	cfaOffsetExtendedSF = 0x11
	cfaDefCFASF         = 0x12
	cfaDefCFAOffsetSF   = 0x13
	cfaValOffset        = 0x14
	cfaValOffsetSF      = 0x15
	cfaValExpression    = 0x16

	cfaMIPSAdvanceLoc8           = 0x1d
	cfaAArch64SetRAState         = 0x2b
	cfaAArch64NegateRAStateWithP = 0x2c
	cfaAArch64NegateRAState      = 0x2d // GNU_window_save on SPARC
	cfaGNUArgsSize               = 0x2e
	cfaGNUNegativeOffsetExtended = 0x2f
)

// maxRemembered bounds the states that a program may remember. Compilers nest two or
// three.
const maxRemembered = 64

// state is a row of DWARF's virtual table, reduced to the registers that rules use.
type state struct {
	// cfa is baseRegister, baseDeref or baseIndexed, or baseNone if unknown. plt is the
	// threshold of a PLT expression, whose base is the stack pointer.
	cfa operand
	// offset is the last CFA in the form register plus offset. After an expression, an
	// instruction that changes only one of them uses the other from here.
	offset operand
	plt    uint8
	isPLT  bool

	fp, ra, sp, base column
}

// column is where a register of the caller is saved.
type column struct {
	how columnRule
	reg uint64 // for columnAt, as in baseRegister; for columnRegister
	off int64  // for columnCFA and columnAt
}

type columnRule uint8

const (
	columnUnspecified columnRule = iota
	columnSame
	columnUndefined
	columnCFA      // in memory at the CFA plus off
	columnAt       // in memory at the register reg plus off
	columnRegister // in the register reg
	columnValue    // reg plus off itself
	columnValueCFA // the CFA plus off itself
	columnUnknown  // not expressible
)

// machine runs call frame programs.
type machine struct {
	arch *arch
	cie  *cie
	state
	remembered []state
	// size is the size of the function in bytes. emit is called with each offset in it
	// where the state may change, and the rule from there on, which is valid until it returns.
	size uint64
	emit func(off uint64, r *Rule)
	// current is the rule of the state. It is converted in place, because a copy right after
	// its small fields were written would wait for them.
	current Rule
}

// run executes the program in r, whose first byte has address base, for the function at
// start. It reports false if the program is damaged.
func (m *machine) run(r *dwarfdata.Reader, base, start uint64) bool {
	var loc uint64
	for r.Left() > 0 {
		op := r.U8()
		delta, isAdvance := m.advance(op, r, base, start+loc)
		if !isAdvance && !m.step(op, r) || r.Bad {
			m.emit(loc, &Rule{Kind: KindUnsupported})
			return false
		}
		if delta == 0 {
			continue
		}
		m.emit(loc, m.rule())
		if delta >= m.size-loc {
			return true // the rest describes no code
		}
		loc += delta
	}
	m.emit(loc, m.rule())
	return true
}

// advance executes an instruction that changes the location, currently pc, and returns
// the difference. ok is false for other instructions.
func (m *machine) advance(op byte, r *dwarfdata.Reader, base, pc uint64) (delta uint64, ok bool) {
	if op&0xc0 == cfaAdvanceLoc {
		return uint64(op&0x3f) * m.cie.CodeAlign, true
	}
	switch op {
	case cfaSetLoc:
		to := callframe.ReadPointer(r, m.cie.Enc, m.cie.AddrSize, base, 0)
		if to < pc {
			r.Fail() // locations must increase
			return 0, true
		}
		return to - pc, true
	case cfaAdvanceLoc1:
		return r.Word(1) * m.cie.CodeAlign, true
	case cfaAdvanceLoc2:
		return r.Word(2) * m.cie.CodeAlign, true
	case cfaAdvanceLoc4:
		return r.Word(4) * m.cie.CodeAlign, true
	case cfaMIPSAdvanceLoc8:
		return r.Word(8), true
	}
	return 0, false
}

// step executes an instruction that does not change the location.
func (m *machine) step(op byte, r *dwarfdata.Reader) bool {
	switch op & 0xc0 {
	case cfaOffset:
		m.set(uint64(op&0x3f), column{how: columnCFA, off: m.factored(int64(r.ULEB()))})
		return true
	case cfaRestore:
		m.restore(uint64(op & 0x3f))
		return true
	}
	switch op {
	case cfaNop, cfaAArch64NegateRAState, cfaAArch64NegateRAStateWithP:
		// Whether a return address is signed does not matter: the walker always removes
		// the signature.
	case cfaAArch64SetRAState:
		r.ULEB() // the state
		r.SLEB() // from here to the instruction that signs
	case cfaGNUArgsSize:
		r.ULEB() // for exceptions only
	case cfaOffsetExtended:
		m.set(r.ULEB(), column{how: columnCFA, off: m.factored(int64(r.ULEB()))})
	case cfaOffsetExtendedSF:
		m.set(r.ULEB(), column{how: columnCFA, off: m.factored(r.SLEB())})
	case cfaGNUNegativeOffsetExtended:
		m.set(r.ULEB(), column{how: columnCFA, off: -m.factored(int64(r.ULEB()))})
	case cfaRestoreExtended:
		m.restore(r.ULEB())
	case cfaUndefined:
		m.set(r.ULEB(), column{how: columnUndefined})
	case cfaSameValue:
		m.set(r.ULEB(), column{how: columnSame})
	case cfaRegister:
		m.set(r.ULEB(), column{how: columnRegister, reg: r.ULEB()})
	case cfaExpression:
		m.set(r.ULEB(), address(r.Block()))
	case cfaValOffset:
		m.set(r.ULEB(), column{how: columnValueCFA, off: m.factored(int64(r.ULEB()))})
	case cfaValOffsetSF:
		m.set(r.ULEB(), column{how: columnValueCFA, off: m.factored(r.SLEB())})
	case cfaValExpression:
		m.set(r.ULEB(), valueOf(r.Block()))
	case cfaRememberState:
		if len(m.remembered) == maxRemembered {
			return false
		}
		m.remembered = append(m.remembered, m.state)
	case cfaRestoreState:
		n := len(m.remembered) - 1
		if n < 0 {
			return false
		}
		m.state, m.remembered = m.remembered[n], m.remembered[:n]
	default:
		return m.define(op, r)
	}
	return true
}

// define executes an instruction that defines the CFA.
func (m *machine) define(op byte, r *dwarfdata.Reader) bool {
	switch op {
	case cfaDefCFA:
		reg := r.ULEB()
		m.setCFA(reg, int64(r.ULEB()))
	case cfaDefCFASF:
		reg := r.ULEB()
		m.setCFA(reg, m.factored(r.SLEB()))
	case cfaDefCFARegister:
		m.setCFA(r.ULEB(), m.offset.off)
	case cfaDefCFAOffset:
		m.setCFA(m.offset.reg, int64(r.ULEB()))
	case cfaDefCFAOffsetSF:
		m.setCFA(m.offset.reg, m.factored(r.SLEB()))
	case cfaDefCFAExpression:
		expr := r.Block()
		m.cfa, m.isPLT = operand{}, false
		if off, threshold, ok := pltExpression(expr); ok && m.arch == amd64 {
			m.cfa = operand{base: baseRegister, reg: m.arch.sp, off: off}
			m.plt, m.isPLT = threshold, true
		} else if reg, off, ok := indexedExpression(expr, m.arch.sp); ok {
			m.cfa = operand{base: baseIndexed, reg: reg, off: off}
		} else if o, ok := evaluate(expr); ok && (o.base == baseRegister || o.base == baseDeref) {
			m.cfa = o
		}
	default:
		return false
	}
	return true
}

func (m *machine) setCFA(reg uint64, off int64) {
	m.offset = operand{base: baseRegister, reg: reg, off: off}
	m.cfa, m.isPLT = m.offset, false
}

func (m *machine) factored(n int64) int64 { return n * m.cie.DataAlign }

// column returns the state's column for a register, or nil.
func (s *state) column(c *cie, a *arch, reg uint64) *column {
	switch reg {
	case c.RA:
		return &s.ra
	case a.fp:
		return &s.fp
	case a.sp:
		return &s.sp
	case a.base:
		return &s.base
	}
	return nil
}

func (m *machine) set(reg uint64, to column) {
	if c := m.column(m.cie, m.arch, reg); c != nil {
		*c = to
	}
}

// restore resets a register to its rule in the CIE.
func (m *machine) restore(reg uint64) {
	if c := m.column(m.cie, m.arch, reg); c != nil {
		*c = *m.cie.initial.column(m.cie, m.arch, reg)
	}
}

// address returns the column of a register that is saved at the address expr.
func address(expr []byte) column {
	o, ok := evaluate(expr, operand{base: baseCFA})
	switch {
	case ok && o.base == baseCFA:
		return column{how: columnCFA, off: o.off}
	case ok && o.base == baseRegister:
		return column{how: columnAt, reg: o.reg, off: o.off}
	}
	return column{how: columnUnknown}
}

// valueOf returns the column of a register whose value is that of expr.
func valueOf(expr []byte) column {
	o, ok := evaluate(expr, operand{base: baseCFA})
	switch {
	case ok && o.base == baseCFA:
		return column{how: columnValueCFA, off: o.off}
	case ok && o.base == baseRegister:
		return column{how: columnValue, reg: o.reg, off: o.off}
	case ok && o.base == baseDeref && o.add == 0:
		return column{how: columnAt, reg: o.reg, off: o.off}
	}
	return column{how: columnUnknown}
}

// rule converts the state into a rule, which is valid until the next call.
func (m *machine) rule() *Rule {
	r := &m.current
	*r = Rule{}
	switch {
	case m.ra.how == columnUndefined:
		r.Kind = KindEnd
	case m.cie.Signal:
		*r = m.signalRule()
	case !m.convert(r):
		*r = Rule{Kind: KindUnsupported}
	}
	return r
}

// convert fills in r, the zero rule. It reports false if no rule expresses the state.
func (m *machine) convert(r *Rule) bool {
	switch m.sp.how {
	case columnUnspecified, columnSame:
	default:
		// The CFA is not the caller's stack pointer, which rules are relative to.
		moved := *m
		if !moved.rebase() {
			return false
		}
		m = &moved
	}
	if !m.convertCFA(r) {
		return false
	}
	r.RASlot, r.RA = m.slot(&m.ra)
	r.FPSlot, r.FP = m.slot(&m.fp)
	return r.RASlot != SlotUnknown && (r.RASlot != SlotSame || m.arch.link)
}

// rebase makes the caller's stack pointer the CFA where it is another address: in functions
// that continue on another stack, such as longjmp(3), and that keep a frame below the CFA for
// others, such as Haskell's StgRun. It reports false if no rule expresses that.
func (m *machine) rebase() bool {
	old, known := m.cfa, m.cfa.base == baseRegister && !m.isPLT
	sp := operand{base: baseRegister, reg: m.sp.reg, off: m.sp.off}
	switch m.sp.how {
	case columnRegister, columnValue:
	case columnAt:
		sp.base = baseDeref
	case columnCFA, columnValueCFA:
		if !known {
			return false
		}
		sp.reg, sp.off = old.reg, old.off+m.sp.off
		if m.sp.how == columnCFA {
			sp.base = baseDeref
		}
	default:
		return false
	}
	for _, c := range []*column{&m.fp, &m.ra, &m.base} {
		switch {
		case c.how != columnCFA:
		case !known:
			c.how = columnUnknown
		case sp.base == baseRegister && sp.reg == old.reg:
			c.off += old.off - sp.off
		default:
			*c = column{how: columnAt, reg: old.reg, off: old.off + c.off}
		}
	}
	m.cfa, m.sp, m.isPLT = sp, column{}, false
	return true
}

// convertCFA fills in the CFA.
func (m *machine) convertCFA(r *Rule) bool {
	if m.cfa.off != int64(int32(m.cfa.off)) || m.cfa.add < 0 || m.cfa.add > math.MaxUint8 {
		return false
	}
	r.CFA = int32(m.cfa.off)
	reg, deref := m.cfa.reg, m.cfa.base == baseDeref
	switch {
	case m.cfa.base == baseNone || reg >= maxRegister:
		return false
	case m.isPLT:
		r.Kind, r.Arg = KindPLT, m.plt
	case reg == m.arch.sp && deref:
		r.Kind, r.Arg = KindDerefSP, uint8(m.cfa.add)
	case reg == m.arch.fp && deref:
		r.Kind, r.Arg = KindDerefFP, uint8(m.cfa.add)
	case deref:
		return false
	case m.cfa.base == baseIndexed:
		r.Kind, r.Arg = KindIndexed, uint8(reg)
	case reg == m.arch.sp:
		r.Kind, r.Arg = KindSP, m.baseWords()
	case reg == m.arch.fp:
		r.Kind, r.Arg = KindFP, m.baseWords()
	default:
		r.Kind, r.Arg = KindRegister, uint8(reg)
	}
	return true
}

// baseWords returns how many words below the CFA the base register is saved.
func (m *machine) baseWords() uint8 {
	c := m.base
	switch {
	case m.arch.base == maxRegister || c.how == columnUnspecified || c.how == columnSame:
		return 0
	case c.how == columnCFA && c.off < 0 && c.off%8 == 0 && c.off > -8*BaseLost:
		return uint8(-c.off / 8)
	}
	return BaseLost
}

// slot converts a column into a slot and its offset.
func (m *machine) slot(c *column) (Slot, int32) {
	if c.off == int64(int32(c.off)) {
		off := int32(c.off)
		switch {
		case c.how == columnUnspecified || c.how == columnSame:
			return SlotSame, 0
		case c.how == columnCFA:
			return SlotCFA, off
		case c.how == columnAt && c.reg == m.arch.sp:
			return SlotSP, off
		case c.how == columnAt && c.reg == m.arch.fp:
			return SlotFP, off
		case c.how == columnRegister && c.reg < maxRegister:
			return SlotRegister, int32(c.reg)
		}
	}
	return SlotUnknown, 0
}

// signalRule recognizes the description of a signal trampoline. On amd64, C libraries
// describe where everything in the kernel's frame is. On arm64, the vDSO before Linux 5.8
// describes the frame record that the kernel adds for debuggers, with the link register
// in place of the program counter.
func (m *machine) signalRule() Rule {
	frame := &m.arch.signal
	if m.arch == arm64 && m.cfa == (operand{base: baseRegister, reg: arm64FP}) {
		return Rule{Kind: KindSignal}
	}
	off := m.cfa.off - frame.sp
	at := func(c column, want int64) bool {
		return c.how == columnAt && c.reg == m.arch.sp && c.off == off+want
	}
	if m.cfa.base == baseDeref && m.cfa.reg == m.arch.sp && m.cfa.add == 0 && off == int64(int32(off)) &&
		at(m.ra, frame.pc) && at(m.fp, frame.fp) {
		return Rule{Kind: KindSignal, CFA: int32(off)}
	}
	return Rule{Kind: KindUnsupported}
}
