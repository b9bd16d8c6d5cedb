package unwind

import "fmt"

// Kind determines how to compute a frame's CFA, or that the walk ends here. The values
// are part of the table format.
type Kind uint8

const (
	// KindNone means that no table describes the address.
	KindNone Kind = iota
	// KindUnsupported means that a table describes the address, but a rule cannot.
	KindUnsupported
	// KindEnd means that the return address is undefined: this is the outermost function
	// of a thread.
	KindEnd
	// KindSP computes the stack pointer plus Rule.CFA. Rule.Arg locates the caller's base
	// register, see [BaseLost].
	KindSP
	// KindFP computes the frame pointer plus Rule.CFA. Rule.Arg is as for KindSP.
	KindFP
	// KindRegister computes the register Rule.Arg plus Rule.CFA. Interrupted frames have all
	// registers. Other frames have the interrupted frame's registers that calls may change,
	// since a function whose frame depends on one calls only functions that leave it alone,
	// as in OpenSSL's assembly. amd64's base register rbx may be known, too: the dynamic loader's
	// stubs for lazy binding locate their frame with it.
	KindRegister
	// KindDerefSP computes the word at the stack pointer plus Rule.CFA, plus Rule.Arg.
	// Hand-written assembly saves the caller's stack pointer like this.
	KindDerefSP
	// KindDerefFP computes the word at the frame pointer plus Rule.CFA, plus Rule.Arg. It
	// occurs in functions that align their stack.
	KindDerefFP
	// KindPLT computes the stack pointer plus Rule.CFA, plus 8 if the low four bits of
	// the program counter are at least Rule.Arg. The stubs of the procedure linkage table
	// are 16 bytes each and push one word.
	KindPLT
	// KindSignal means that the kernel's signal frame is at the stack pointer plus
	// Rule.CFA. It contains all registers of the interrupted code, whose program counter
	// is exact rather than a return address.
	KindSignal
	// KindChain follows the chain of frame pointers. It is for code that cannot be analyzed, among functions
	// that keep frame pointers, without knowing whether the function has a frame. It is also for analyzed code
	// with a standard frame, just below the return address: the kernel's walker recognizes the frames of V8
	// there. Then Rule.Arg is [ChainAtEnd]. [Chain] returns its rules.
	KindChain
	// KindSwitch computes the frame pointer plus Rule.CFA, for a function that runs others on
	// another stack, above or below. A frame pointer of 0 is the end: the other stack does not
	// lead back to a caller.
	KindSwitch
	// KindGoroutine continues with the goroutine of the thread, whose stack Go's runtime grows on
	// another one: the thread's g is Rule.CFA from the thread pointer, g.m.curg is Rule.FP in
	// runtime.m, and sched.bp is Rule.RA in runtime.g.
	KindGoroutine
	// KindIndexed computes the word at the stack pointer plus Rule.CFA plus eight times the
	// register Rule.Arg, plus 8. Big-number arithmetic saves the caller's stack pointer above
	// an array like this. The register is known as for KindRegister.
	KindIndexed
	// KindUnread is for code that is not analyzed yet, see [Options.Deferred]. [Walker] ends there.
	KindUnread
)

// BaseLost is the Rule.Arg of a function that does not keep the caller's base register in
// a known place. A smaller value is the number of words below the CFA where it is saved,
// or 0 if it is still in the register.
const BaseLost = 255

// The values of Rule.Arg for [KindChain] say what is known of the chain of frame pointers.
const (
	// ChainAny: nothing but that the caller's frame is above this one.
	ChainAny = 0
	// ChainStacks: it may lead to another stack, as in Go.
	ChainStacks = 1
	// ChainAtEnd: the function has a standard frame, so the caller's stack pointer is known after a step from
	// there.
	ChainAtEnd = 2
)

// Chain returns the rule that follows the chain of frame pointers. arg says what is known of it: ChainAny, for
// example.
func Chain(arg uint8) Rule {
	return Rule{Kind: KindChain, Arg: arg, CFA: 16, FPSlot: SlotFP, RASlot: SlotFP, RA: 8}
}

var kindNames = [...]string{
	KindNone: "none", KindUnsupported: "unsupported", KindEnd: "end", KindSP: "sp", KindFP: "fp",
	KindRegister: "register", KindDerefSP: "*sp", KindDerefFP: "*fp", KindPLT: "plt", KindSignal: "signal",
	KindChain: "chain", KindSwitch: "switch", KindGoroutine: "goroutine", KindIndexed: "indexed",
	KindUnread: "unread",
}

// String returns the kind's short name.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

// Slot locates the caller's frame pointer or the return address. The values are part of
// the table format.
type Slot uint8

const (
	// SlotSame is the value's usual register. For a return address, this is the link
	// register, which is known only in an interrupted frame.
	SlotSame Slot = iota
	// SlotCFA is memory at the CFA plus the offset.
	SlotCFA
	// SlotSP is memory at this frame's stack pointer plus the offset.
	SlotSP
	// SlotFP is memory at this frame's frame pointer plus the offset.
	SlotFP
	// SlotRegister is the register whose number is the offset. It is known as for
	// [KindRegister].
	SlotRegister
	// SlotUnknown is a lost value, or a place that a rule cannot express.
	SlotUnknown
)

var slotNames = [...]string{
	SlotSame: "same", SlotCFA: "cfa", SlotSP: "sp", SlotFP: "fp", SlotRegister: "register", SlotUnknown: "unknown",
}

// String returns the slot's short name.
func (s Slot) String() string { return name(slotNames[:], int(s)) }

// Rule describes how to get from a frame to its caller. Offsets are in bytes, and
// registers have DWARF numbers. The caller's stack pointer is the CFA. The zero Rule
// stands for an address without a table. The layout, 16 bytes, matches struct
// unwind_rule of the kernel side.
type Rule struct {
	CFA int32 // see [Kind]
	FP  int32 // see [Slot]
	RA  int32 // see [Slot]
	// Kind determines the meaning of CFA and Arg. For KindSignal and the kinds that end
	// the walk, the slots are unused and zero.
	Kind   Kind
	Arg    uint8
	FPSlot Slot
	RASlot Slot
}

// String returns the rule in short form: "cfa=sp+16 fp=cfa-16 ra=cfa-8".
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
	case KindIndexed:
		cfa = fmt.Sprintf("*(sp%+d+r%d*8)+8", r.CFA, r.Arg)
	case KindDerefSP, KindDerefFP:
		cfa = fmt.Sprintf("*(%s%+d)+%d", r.Kind.String()[1:], r.CFA, r.Arg)
	case KindPLT:
		cfa = fmt.Sprintf("sp%+d+((pc&15)>=%d)*8", r.CFA, r.Arg)
	case KindSignal:
		return fmt.Sprintf("signal frame at sp%+d", r.CFA)
	case KindSwitch:
		cfa = fmt.Sprintf("other stack at fp%+d", r.CFA)
	case KindGoroutine:
		return fmt.Sprintf("goroutine at tp%+d m%+d g%+d", r.CFA, r.FP, r.RA)
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
