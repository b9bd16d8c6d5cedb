// Package boundary tells at which addresses in a function instructions begin, for breakpoints at
// places that a user or a file names: a breakpoint elsewhere changes the program's behavior.
//
// It follows the flow of control from the function's entry. If the function has an indirect jump, such as
// that of a switch, the rest of its code is decoded one instruction after the other. This code is in doubt
// if something suggests that the function has data among its code, as functions written in assembly do:
// an instruction that is not known, a symbol, or an instruction that refers to it. Code that only
// exceptions reach is always in doubt.
package boundary

import (
	"debug/elf"
	"errors"
	"fmt"

	"fulgur/internal/symbols/instruction"
)

// ErrInside is wrapped by the error for a place inside an instruction.
var ErrInside = errors.New("no instruction begins there")

// Reasons why it is in doubt whether an instruction begins at a place.
var (
	errUnreached = errors.New("it is in doubt whether an instruction begins there: no jump leads there")
	errOverlap   = errors.New("it is in doubt which instructions the function has: its jumps lead into the middle of others")
	errUnknown   = errors.New("it is in doubt whether an instruction begins there: no jump is known to lead there, and the function has an unknown instruction")
	errData      = errors.New("it is in doubt whether an instruction begins there: no jump is known to lead there, and the function may have data among its code")
	errExclusive = errors.New("it is between a load-exclusive instruction and its store, which would fail forever with a breakpoint there")
)

// Function is the code of a function.
type Function struct {
	Machine elf.Machine
	// Code is the code from the link-time address Start on, all of it unless it was cut off.
	Code  []byte
	Start uint64
	// Entries are the addresses of functions that begin in the function, and Labels those of all other
	// symbols in it.
	Entries, Labels []uint64
}

// maxExclusive bounds the distance of a load-exclusive and its store-exclusive, in bytes. Processors
// allow only a few instructions between them.
const maxExclusive = 256

// Check returns an error unless an instruction begins at an offset in the function, beyond doubt, and
// a breakpoint there lets the program continue.
func (f Function) Check(offset uint64) error {
	decode := instruction.DecoderOf(f.Machine)
	switch {
	case decode == nil:
		return fmt.Errorf("code for %v is not supported", f.Machine)
	case offset >= uint64(len(f.Code)):
		return fmt.Errorf("%w: the function has only %d bytes", ErrInside, len(f.Code))
	}
	w := walk{Function: f, decode: decode, begins: make([]bool, len(f.Code)), covered: make([]bool, len(f.Code))}
	w.follow(f.Start)
	for _, entry := range f.Entries {
		w.follow(entry)
	}
	switch {
	case w.overlap:
		return errOverlap
	case w.begins[offset]:
	case w.covered[offset]:
		return w.inside(offset)
	default:
		if err := w.sweep(offset); err != nil {
			return err
		}
	}
	if w.isExclusive(offset) {
		return errExclusive
	}
	return nil
}

// walk is a walk through the code of a function.
type walk struct {
	Function
	decode instruction.Decoder
	// By offset: an instruction begins here, and a byte of an instruction is here.
	begins, covered []bool
	references      []uint64 // of the instructions
	overlap         bool
	indirect        bool // an indirect jump was reached
}

// add adds an instruction. It reports false if it overlaps another one.
func (w *walk) add(at uint64, i instruction.Instruction) bool {
	for n := range uint64(i.Size) {
		if w.covered[at+n] {
			w.overlap = true
			return false
		}
	}
	for n := range uint64(i.Size) {
		w.covered[at+n] = true
	}
	w.begins[at] = true
	if i.Reference != 0 {
		w.references = append(w.references, i.Reference)
	}
	return true
}

// follow adds the instructions that are reached from an address.
func (w *walk) follow(address uint64) {
	for rest := []uint64{address}; len(rest) > 0 && !w.overlap; {
		at := rest[len(rest)-1] - w.Start
		rest = rest[:len(rest)-1]
		for at < uint64(len(w.Code)) && !w.begins[at] {
			i, ok := w.decode(w.Code[at:], w.Start+at)
			if !ok || !w.add(at, i) {
				break
			}
			next := at + uint64(i.Size)
			goesOn := !i.Kind.Ends()
			switch i.Kind {
			case instruction.IndirectJump:
				w.indirect = true
			case instruction.ConditionalJump, instruction.CounterJump, instruction.Jump:
				rest = append(rest, i.Target)
			case instruction.Call:
				// Code may call an address inside itself to get the address of data after the call.
				if to := i.Target - w.Start; to > 0 && to < uint64(len(w.Code)) {
					rest = append(rest, i.Target)
					goesOn = false
				}
			}
			if !goesOn {
				break
			}
			at = next
		}
	}
}

// inside returns the error for an offset inside an instruction.
func (w *walk) inside(offset uint64) error {
	before, after := offset, offset
	for before > 0 && !w.begins[before] {
		before--
	}
	for after < uint64(len(w.Code)) && w.covered[after] && !w.begins[after] {
		after++
	}
	return fmt.Errorf("%w: the nearest ones are at +%#x and +%#x", ErrInside, before, after)
}

// sweep checks an offset that no jump is known to lead to. It decodes the whole function.
func (w *walk) sweep(offset uint64) error {
	if !w.indirect {
		return errUnreached
	}
	reached := w.begins
	w.begins = make([]bool, len(w.Code))
	all := make([]bool, len(w.Code))
	size := uint64(len(w.Code))
	for at := uint64(0); at < size; {
		i, ok := w.decode(w.Code[at:], w.Start+at)
		if !ok {
			return errUnknown
		}
		w.begins[at] = true
		for n := range uint64(i.Size) {
			all[at+n] = true
		}
		if i.Reference != 0 {
			w.references = append(w.references, i.Reference)
		}
		switch i.Kind {
		case instruction.ConditionalJump, instruction.CounterJump, instruction.Jump, instruction.Call:
			if to := i.Target - w.Start; to < size && !reached[to] && w.covered[to] {
				return errData // it leads into the middle of an instruction
			}
		}
		at += uint64(i.Size)
	}
	for at := range reached {
		if reached[at] && !w.begins[at] {
			return errData
		}
	}
	for _, to := range append(w.references, w.Labels...) {
		if at := to - w.Start; at < size && !reached[at] {
			return errData
		}
	}
	w.covered = all
	if !w.begins[offset] {
		return w.inside(offset)
	}
	return nil
}

// isExclusive reports whether the instruction at an offset is between a load-exclusive and its
// store-exclusive, both included.
func (w *walk) isExclusive(offset uint64) bool {
	if w.Machine != elf.EM_AARCH64 {
		return false
	}
	const size = 4
	for at := offset; offset-at <= maxExclusive; at -= size {
		i, ok := w.decode(w.Code[at:], w.Start+at)
		switch {
		case ok && i.Exclusive == instruction.LoadExclusive:
			return true
		case ok && i.Exclusive == instruction.EndExclusive && at < offset || at < size:
			return false
		}
	}
	return false
}
