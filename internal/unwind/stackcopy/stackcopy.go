// Package stackcopy walks the copies of stacks in samples of perf events, from perf.data or from a ring.
package stackcopy

import (
	"debug/elf"
	"encoding/binary"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
)

// Walker walks copies of stacks. It is not safe for concurrent use.
type Walker struct {
	walker unwind.Walker
	find   func(addr uint64) (unwind.Code, uint64, bool)
	frames []unwind.Frame
	sps    []uint64

	// The stack that is being walked.
	state  perfevent.UserState
	sp     uint64
	beyond bool // a read of the last step was beyond the copied part of the stack
}

// maxStack bounds the size of a stack, in bytes: the default limit of the main thread's.
const maxStack = 8 << 20

// addressBits are the bits of addresses by machine. On arm64, the others may hold the
// pointer authentication code (PAC) of a return address.
var addressBits = map[elf.Machine]uint64{elf.EM_AARCH64: 1<<48 - 1}

// New returns a walker for stacks of a machine. find returns the code at an address, as [unwind.Walker.Find].
func New(machine elf.Machine, find func(addr uint64) (unwind.Code, uint64, bool)) *Walker {
	w := &Walker{find: find}
	w.walker = unwind.Walker{Machine: machine, Find: w.code, Read: w.read, AboveSP: true, PCMask: addressBits[machine]}
	w.walker.Stepped = func(sp uint64) { w.sps = append(w.sps, sp) }
	return w
}

// Walk returns the frames of a stack, innermost first, and why they end. There are none if the registers are missing or
// of another ABI. The frames are valid until the next call.
func (w *Walker) Walk(state perfevent.UserState) ([]unwind.Frame, stackend.End) {
	regs, ok := registers(state, w.walker.Machine)
	if !ok || state.ABI != perfevent.ABI64 {
		return nil, stackend.NoTable // as for all code of such a machine
	}
	w.state, w.beyond, w.sps = state, false, w.sps[:0]
	w.sp = regs.R[stackPointer[w.walker.Machine]]
	var end stackend.End
	// Each caller takes at least a word of the stack. Only a walk that signal frames lead back
	// to where it has been takes more steps.
	w.frames, end = w.walker.Walk(regs, w.frames[:0], 2+len(state.Stack)/8)
	return w.frames, w.reason(end)
}

// StackPointers returns the stack pointers in the first frames of the last stack, and the one after its last frame if all are
// known. They are valid until the next call of [Walker.Walk].
func (w *Walker) StackPointers() []uint64 { return w.sps }

// reason returns the end in a profile.
func (w *Walker) reason(end stackend.End) stackend.End {
	switch {
	case w.beyond && (end == stackend.Fault || end == stackend.Broken):
		return stackend.Copy
	case end == stackend.Depth:
		return stackend.NotGrowing // see Walk
	}
	return end.InProfile()
}

// code implements the walker's Find.
func (w *Walker) code(addr uint64) (unwind.Code, uint64, bool) {
	w.beyond = false // a step begins
	return w.find(addr)
}

// read implements the walker's Read.
func (w *Walker) read(addr uint64, buf []byte) bool {
	at, copied := addr-w.sp, uint64(len(w.state.Stack))
	if at <= copied && uint64(len(buf)) <= copied-at {
		copy(buf, w.state.Stack[at:])
		return true
	}
	// The kernel's copy ends early at a page that it cannot read.
	w.beyond = w.state.Full && at < maxStack
	return false
}

// Continue continues a stack from [Walker.Walk] that ended because the copy lacks the rest. It uses the call chain of the
// same sample, for which the kernel followed frame pointers in memory, even from a thread's own stack to a goroutine's.
// If the last frame is also in the chain, it appends the chain's frames after it, as long as each function is known to
// keep frame pointers. The frames are valid until the next call of Walk.
func (w *Walker) Continue(frames []unwind.Frame, end stackend.End, chain []byte) ([]unwind.Frame, stackend.End) {
	if len(frames) < 2 || end != stackend.Fault && end != stackend.Copy {
		return frames, end
	}
	rest, ok := after(chain, frames[len(frames)-1].PC)
	if !ok {
		return frames, end
	}
	rule, keeps := w.chained(frames[len(frames)-1])
	for ; keeps && len(rest) >= 8; rest = rest[8:] {
		next := unwind.Frame{PC: binary.NativeEndian.Uint64(rest)}
		if _, _, mapped := w.find(next.Lookup()); !mapped {
			break
		}
		frames, end = append(frames, next), stackend.FramePointer
		rule, keeps = w.chained(next)
	}
	w.frames = frames
	switch {
	case rule.Kind == unwind.KindEnd:
		end = stackend.Complete
	case !keeps && end == stackend.FramePointer:
		end = stackend.NoTable // no rule for a frame of which only the address is known
	}
	return frames, end
}

// chained returns the rule of a frame, and whether its function keeps frame pointers.
func (w *Walker) chained(f unwind.Frame) (r unwind.Rule, keeps bool) {
	code, bias, ok := w.find(f.Lookup())
	if !ok {
		return r, false
	}
	r = code.Rule(f.Lookup() - bias)
	switch r.Kind {
	case unwind.KindEnd:
		return r, false
	case unwind.KindFP, unwind.KindSwitch, unwind.KindChain:
		return r, true
	}
	return r, code.Fallback.Kind == unwind.KindChain
}

// after returns the part of a call chain after an address. ok is false unless the chain has it exactly once.
func after(chain []byte, pc uint64) (rest []byte, ok bool) {
	for b := chain; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint64(b) != pc {
			continue
		}
		if ok {
			return nil, false
		}
		rest, ok = b[8:], true
	}
	return rest, ok
}
