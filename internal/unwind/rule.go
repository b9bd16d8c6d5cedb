package unwind

import "fmt"

// Kind says how a frame's CFA is found, or that the walk ends here. Its values
// are part of the format of tables.
type Kind uint8

const (
	// KindNone says that no table describes this address.
	KindNone Kind = iota
	// KindUnsupported says that a table describes it, but no rule can.
	KindUnsupported
	// KindEnd says that the return address is undefined: the outermost
	// function of a thread.
	KindEnd
	// KindSP takes the stack pointer plus Rule.CFA. Rule.Arg says where the
	// caller's base register is: see [BaseLost].
	KindSP
	// KindFP takes the frame pointer plus Rule.CFA. Rule.Arg is as for KindSP.
	KindFP
	// KindRegister takes the register Rule.Arg plus Rule.CFA. Only in a frame
	// that was interrupted are all registers known. In others the base register
	// of amd64, rbx, may be: the dynamic loader's stubs for lazy binding find
	// their frame by it.
	KindRegister
	// KindDerefSP takes the word at the stack pointer plus Rule.CFA, plus
	// Rule.Arg. Hand-written assembly saves the caller's stack pointer so.
	KindDerefSP
	// KindDerefFP takes the word at the frame pointer plus Rule.CFA, plus
	// Rule.Arg. Functions that align their stack are so.
	KindDerefFP
	// KindPLT takes the stack pointer plus Rule.CFA, plus 8 if the low four bits
	// of the program counter are at least Rule.Arg. The stubs of the
	// procedure linkage table are 16 bytes each and push one word.
	KindPLT
	// KindSignal says that the kernel's signal frame is at the stack pointer plus
	// Rule.CFA. All registers of the interrupted code are in it, and its
	// program counter is exact, not a return address.
	KindSignal
)

// BaseLost is the Rule.Arg of a function that does not keep the caller's base
// register where it can be found. Less than that is how many words below the CFA
// it is saved, or 0 if it is where it was.
const BaseLost = 255

var kindNames = [...]string{
	KindNone: "none", KindUnsupported: "unsupported", KindEnd: "end", KindSP: "sp", KindFP: "fp",
	KindRegister: "register", KindDerefSP: "*sp", KindDerefFP: "*fp", KindPLT: "plt", KindSignal: "signal",
}

// String returns the kind's short name.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

// Slot says where the caller's frame pointer or the return address is. Its
// values are part of the format of tables.
type Slot uint8

const (
	// SlotSame is in the register where it always is. For a return address
	// that is the link register, which only an interrupted frame has.
	SlotSame Slot = iota
	// SlotCFA is in memory at the CFA plus the offset.
	SlotCFA
	// SlotSP is in memory at this frame's stack pointer plus the offset.
	SlotSP
	// SlotFP is in memory at this frame's frame pointer plus the offset.
	SlotFP
	// SlotRegister is in the register whose number is the offset, which only
	// an interrupted frame has.
	SlotRegister
	// SlotUnknown is lost, or where no rule can tell.
	SlotUnknown
)

var slotNames = [...]string{
	SlotSame: "same", SlotCFA: "cfa", SlotSP: "sp", SlotFP: "fp", SlotRegister: "register", SlotUnknown: "unknown",
}

// String returns the slot's short name.
func (s Slot) String() string { return name(slotNames[:], int(s)) }

// Rule says how to get from a frame to its caller's. Offsets are in bytes,
// registers have DWARF's numbers. The caller's stack pointer is the CFA. The
// zero Rule stands for an address without a table. Its 16 bytes are those of
// struct unwind_rule in the kernel's walker.
type Rule struct {
	CFA int32 // see [Kind]
	FP  int32 // see [Slot]
	RA  int32 // see [Slot]
	// Kind says what CFA and Arg mean. If it is KindSignal or one that ends
	// the walk, the slots mean nothing and are zero.
	Kind   Kind
	Arg    uint8
	FPSlot Slot
	RASlot Slot
}

// String returns the rule in a short form for people: "cfa=sp+16 fp=cfa-16
// ra=cfa-8".
func (r Rule) String() string {
	var cfa string
	switch r.Kind {
	case KindSP, KindFP:
		cfa = fmt.Sprintf("%v%+d", r.Kind, r.CFA)
		switch r.Arg {
		case 0:
		case BaseLost:
			cfa += " base=unknown"
		default:
			cfa += fmt.Sprintf(" base=cfa-%d", 8*int(r.Arg))
		}
	case KindRegister:
		cfa = fmt.Sprintf("r%d%+d", r.Arg, r.CFA)
	case KindDerefSP, KindDerefFP:
		cfa = fmt.Sprintf("*(%s%+d)+%d", r.Kind.String()[1:], r.CFA, r.Arg)
	case KindPLT:
		cfa = fmt.Sprintf("sp%+d+((pc&15)>=%d)*8", r.CFA, r.Arg)
	case KindSignal:
		return fmt.Sprintf("signal frame at sp%+d", r.CFA)
	default:
		return r.Kind.String()
	}
	return fmt.Sprintf("cfa=%s fp=%s ra=%s", cfa, place(r.FPSlot, r.FP), place(r.RASlot, r.RA))
}

func place(s Slot, off int32) string {
	switch s {
	case SlotCFA, SlotSP, SlotFP:
		return fmt.Sprintf("%v%+d", s, off)
	case SlotRegister:
		return fmt.Sprintf("r%d", off)
	}
	return s.String()
}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("?%d", i)
}
