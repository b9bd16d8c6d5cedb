// Package returns finds the instructions that end the calls of compiled functions, for uprobes
// that measure calls without changing return addresses.
//
// It reads the code between the bounds of functions in call frame information, which stripped
// programs have, too, or else between those of symbols. Code that compilers do not generate is an error,
// since its ends are in doubt.
package returns

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/symbols/rseq"
)

// Reasons why the ends of calls cannot be known.
var (
	ErrUnknown   = errors.New("its code has an unknown instruction")
	ErrElsewhere = errors.New("it can end with a jump to another function")
	ErrIndirect  = errors.New("it has a jump whose target is unknown")
	ErrEntry     = errors.New("it has a jump back to its entry")
	ErrNone      = errors.New("it has no return instruction")
	ErrData      = errors.New("it has data among its code")
	ErrBounds    = errors.New("its bounds are unknown")
	ErrSize      = errors.New("its code is too large")
)

// Limits of the code of a function, with that of the functions to which it jumps.
const (
	maxParts   = 64
	maxSize    = 1 << 20 // bytes
	maxReturns = 512
)

// maxFunctions limits the functions whose bounds are kept.
const maxFunctions = 1 << 20

// Finder finds returns in a file. It is not safe for concurrent use.
type Finder struct {
	// File is the file, for x86-64 or arm64.
	File *elffile.File
	// Symbols are the files with its symbols; nil means File alone.
	Symbols elffile.Tables
	// Follow reports whether the code at an address, to which the function jumps and which has
	// call frame information of its own, belongs to the call: a part of the function, or a
	// function that it calls last. Without it, the result is [ErrElsewhere].
	Follow func(address uint64) bool
	// Parts returns the addresses of the split-off parts of the function to which the code at an address
	// belongs, if known: the table of a switch can be the only way to them. It returns false if they are in
	// doubt.
	Parts func(address uint64) (parts []uint64, ok bool)
	// Partial leaves out the returns of functions that it calls last and whose addresses are
	// unknown, instead of an [ErrIndirect] or [ErrElsewhere].
	Partial bool

	stubs map[uint64]uint64 // of the procedure linkage table: the functions of the file, by address
	// framed are the bounds of all functions in call frame information without a search table, and named
	// those of symbols; each in ascending order.
	framed, named func() ([]callframe.Bounds, error)
	sequences     *rseq.Sequences
}

// Find returns the link-time virtual addresses of the return instructions that can end calls of
// the function at an entry, in ascending order. Other functions may share them: a call of this
// function ends at the one at which the stack pointer is as at its entry. The errors wrap those
// of this package or of package rseq, or say what could not be read.
func (f *Finder) Find(entry uint64) ([]uint64, error) {
	decode := instruction.DecoderOf(f.File.Machine())
	if decode == nil {
		return nil, fmt.Errorf("code for %v is not supported", f.File.Machine())
	}
	if f.sequences == nil {
		var err error
		if f.sequences, err = rseq.Read(f.File); err != nil {
			return nil, err
		}
	}
	w := walk{Finder: f, decode: decode, entry: entry, known: map[uint64]bool{}}
	if err := w.add(entry, true); err != nil {
		return nil, err
	}
	for len(w.parts) > 0 {
		part := w.parts[len(w.parts)-1]
		w.parts = w.parts[:len(w.parts)-1]
		if err := w.read(part); err != nil {
			return nil, err
		}
	}
	slices.Sort(w.returns)
	switch n := len(w.returns); {
	case n == 0:
		return nil, ErrNone
	case n > maxReturns:
		return nil, ErrSize
	}
	for _, at := range append([]uint64{entry}, w.returns...) {
		if err := f.sequences.Check(at); err != nil {
			return nil, fmt.Errorf("no breakpoint can be at %#x: %w", at, err)
		}
	}
	return w.returns, nil
}

// bounds returns the bounds of the function at an address, zero if they are unknown.
func (f *Finder) bounds(address uint64) (b callframe.Bounds, err error) {
	if f.framed == nil {
		f.framed = sync.OnceValues(func() ([]callframe.Bounds, error) {
			all, err := callframe.All(f.File, maxFunctions)
			return sorted(all), err
		})
		f.named = sync.OnceValues(func() ([]callframe.Bounds, error) {
			tables := f.Symbols
			if tables == nil {
				tables = elffile.Tables{f.File}
			}
			all, err := symbols(tables)
			return sorted(all), err
		})
	}
	if callframe.HasIndex(f.File) {
		found, err := callframe.Find(f.File, []uint64{address})
		if err != nil || found[0].Start != 0 {
			return found[0], err
		}
	} else if b, err = around(f.framed, address); err != nil || b.Start != 0 {
		return b, err
	}
	return around(f.named, address)
}

// symbols returns the bounds of the functions that have symbols.
func symbols(tables elffile.Tables) (all []callframe.Bounds, err error) {
	err = tables.Each(func(sym elffile.Symbol, _ func() []byte) bool {
		if sym.Section != elf.SHN_UNDEF && sym.Type == elf.STT_FUNC && sym.Size > 0 && sym.Value+sym.Size > sym.Value {
			all = append(all, callframe.Bounds{Start: sym.Value, End: sym.Value + sym.Size})
		}
		return len(all) < maxFunctions
	})
	return all, err
}

func sorted(all []callframe.Bounds) []callframe.Bounds {
	slices.SortFunc(all, func(a, b callframe.Bounds) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	return all
}

// around returns the bounds that contain an address, among those that begin last before it, zero if there
// are none.
func around(all func() ([]callframe.Bounds, error), address uint64) (b callframe.Bounds, err error) {
	bounds, err := all()
	i, _ := slices.BinarySearchFunc(bounds, address, func(b callframe.Bounds, address uint64) int {
		if b.Start <= address {
			return -1
		}
		return 1
	})
	if err != nil || i == 0 || address >= bounds[i-1].End {
		return b, err
	}
	return bounds[i-1], nil
}

// walk is a walk over the parts of a function's code.
type walk struct {
	*Finder
	decode  instruction.Decoder
	entry   uint64
	parts   []callframe.Bounds // to read
	known   map[uint64]bool    // starts of parts
	size    uint64
	returns []uint64
}

// add adds the part that contains an address.
func (w *walk) add(address uint64, isEntry bool) error {
	address, err := w.behindStub(address)
	if err != nil {
		return err
	}
	b, err := w.bounds(address)
	if err != nil {
		return err
	}
	switch {
	case w.inStubs(b.Start) && w.Partial:
		return nil
	case w.inStubs(b.Start):
		return ErrElsewhere // in another file
	case b.Start == 0 || b.End <= b.Start || isEntry && b.Start != address:
		return ErrBounds
	case !isEntry && address == w.entry:
		return ErrEntry // by way of a stub
	case w.known[b.Start]:
		return nil
	case !isEntry && !w.Follow(b.Start):
		return ErrElsewhere
	}
	w.size += b.End - b.Start
	if w.size > maxSize || len(w.known) == maxParts {
		return ErrSize
	}
	w.known[b.Start] = true
	w.parts = append(w.parts, b)
	return nil
}

// behindStub returns the function that a stub of the procedure linkage table at an address calls, if it
// is in the same file. Another file can replace it; then its returns are missing.
func (f *Finder) behindStub(address uint64) (uint64, error) {
	if f.stubs == nil {
		entries, err := f.File.PLT()
		if err != nil {
			return 0, err
		}
		f.stubs = make(map[uint64]uint64, len(entries))
		for _, e := range entries {
			s, ok, err := f.File.DynamicSymbol(e.Name)
			switch {
			case err != nil:
				return 0, err
			case ok && s.Type == elf.STT_FUNC:
				f.stubs[e.Addr] = s.Value
			default:
				f.stubs[e.Addr] = 0
			}
		}
	}
	if target := f.stubs[address]; target != 0 {
		return target, nil
	}
	return address, nil
}

// inStubs reports whether code is in the procedure linkage table.
func (f *Finder) inStubs(address uint64) bool {
	sections, err := f.File.Sections()
	return err == nil && slices.ContainsFunc(sections, func(s *elffile.Section) bool { return s.IsPLT() && s.Holds(address) })
}

// read reads a part.
func (w *walk) read(b callframe.Bounds) error {
	offset, ok := w.File.Offset(b.Start)
	if !ok {
		return ErrBounds
	}
	code, err := w.File.Bytes(int64(offset), b.End-b.Start, "function")
	if err != nil {
		return err
	}
	found, jumps, tables, err := scan(w.File.Machine(), w.decode, code, b.Start, w.entry, w.Partial, w.word)
	if err != nil {
		return err
	}
	if tables && w.Parts != nil {
		parts, ok := w.Parts(b.Start)
		if !ok {
			return ErrIndirect
		}
		jumps = append(jumps, parts...)
	}
	w.returns = append(w.returns, found...)
	for _, target := range jumps {
		if err := w.add(target, false); err != nil {
			return err
		}
	}
	return nil
}

// word returns the 8 bytes at an address in the file.
func (f *Finder) word(address uint64) (uint64, bool) {
	offset, ok := f.File.Offset(address)
	if !ok {
		return 0, false
	}
	b, err := f.File.Bytes(int64(offset), 8, "jump table")
	if err != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// scan returns the return instructions in code, which is at start, and the targets of jumps out of
// it, and whether it has jumps by tables. The function has its entry there or elsewhere. partial ignores
// indirect jumps. word reads from the file.
func scan(machine elf.Machine, decode instruction.Decoder, code []byte, start, entry uint64, partial bool, word func(address uint64) (uint64, bool)) (found, jumps []uint64, tables bool, err error) {
	var before history
	var last instruction.Kind
	for at := 0; at < len(code); {
		address := start + uint64(at)
		in, ok := decode(code[at:], address)
		if !ok || in.Size <= 0 {
			return nil, nil, false, ErrUnknown
		}
		text := code[at : at+in.Size]
		switch in.Kind {
		case instruction.Return:
			if !isPlainReturn(machine, text) {
				return nil, nil, false, ErrUnknown
			}
			if before.setsTarget(machine) {
				return nil, nil, false, ErrIndirect
			}
			found = append(found, address)
		case instruction.Jump, instruction.ConditionalJump, instruction.CounterJump:
			switch {
			case in.Target == entry:
				return nil, nil, false, ErrEntry // each turn of a loop would look like a call
			case in.Target-start >= uint64(len(code)):
				jumps = append(jumps, in.Target)
			}
		case instruction.IndirectJump:
			if partial {
				break
			}
			tables = true
			if before.computes(machine, text, in.Operand) {
				break
			}
			// A table of addresses can also be one of functions.
			first, ok := word(uint64(in.Operand.Displacement))
			if !isByTable(in.Operand) || !ok || first-start >= uint64(len(code)) {
				return nil, nil, false, ErrIndirect
			}
		case instruction.Plain:
			if isLiteral(machine, text) {
				return nil, nil, false, ErrData
			}
		}
		before.add(text)
		last = in.Kind
		at += in.Size
	}
	if !last.Ends() && last != instruction.Call && last != instruction.IndirectCall {
		return nil, nil, false, ErrBounds // it goes on; a call at the end does not return
	}
	return found, jumps, tables, nil
}

// isPlainReturn reports whether a return instruction takes only the return address from the stack.
func isPlainReturn(machine elf.Machine, text []byte) bool {
	if machine == elf.EM_AARCH64 {
		const ret = 0xd65f03c0 // to x30
		return binary.LittleEndian.Uint32(text) == ret
	}
	return text[len(text)-1] == 0xc3 && len(text) <= 2 // rep ret and bnd ret, too
}

// isLiteral reports whether an instruction loads data from the code.
func isLiteral(machine elf.Machine, text []byte) bool {
	return machine == elf.EM_AARCH64 && binary.LittleEndian.Uint32(text)&0x3b000000 == 0x18000000
}

// history holds the last instructions, the last one first.
type history [4][]byte

func (h *history) add(text []byte) {
	copy(h[1:], h[:])
	h[0] = text
}

// setsTarget reports whether a return after these instructions is a jump, to where they tell: as in a
// retpoline, which the compiler can put into functions (-mindirect-branch=thunk-inline).
func (h *history) setsTarget(machine elf.Machine) bool {
	last := h[0]
	if machine != elf.EM_X86_64 || len(last) == 0 {
		return false
	}
	isStore := len(last) == 4 && last[0]&0xfb == 0x48 && last[1] == 0x89 && last[2]&0xc7 == 0x04 && last[3] == 0x24 // mov %reg, (%rsp)
	isPush := last[0]&0xf8 == 0x50 || last[0] == 0x68 || last[0] == 0x6a || len(last) == 2 && last[0] == 0x41 && last[1]&0xf8 == 0x50
	return isStore || isPush
}

// isByTable reports whether the operand of an x86 jump is an entry of a table at a fixed address, as in a
// switch of a program that is not position-independent. With a base register, it is usually an array of
// pointers to functions: tables of position-independent code have offsets.
func isByTable(o instruction.Operand) bool {
	return o.Memory && o.Base == instruction.NoRegister && !o.Relative && !o.Segment &&
		o.Index != instruction.NoRegister && o.Scale == 8
}

// computes reports whether an indirect jump after these instructions is one of a switch, whose
// targets are in the function. Compilers load the target from a table of offsets, and add the address of
// the table. Other indirect jumps lead to other functions, except by some tables; see isByTable.
func (h *history) computes(machine elf.Machine, text []byte, o instruction.Operand) bool {
	if machine == elf.EM_AARCH64 {
		if o.Memory || len(h[0]) != 4 {
			return false
		}
		word := binary.LittleEndian.Uint32(h[0])
		isSum := word&0xffe00000 == 0x8b200000 || word&0xff200000 == 0x8b000000 // add, 64 bits
		return isSum && word&31 == uint32(o.Base)
	}
	const notrack = 0x3e // compilers use it for tables only
	if text[0] == notrack {
		return true
	}
	if o.Memory {
		return false
	}
	// movslq (table,index,4), offset; add table, offset; jmp *offset
	add := h[0]
	if len(add) != 3 || add[0]&0xf8 != 0x48 || add[1] != 0x01 && add[1] != 0x03 || add[2]>>6 != 3 {
		return false
	}
	to := add[2]&7 | add[0]&1<<3 // of add r/m, r
	if add[1] == 0x03 {
		to = add[2]>>3&7 | add[0]&4<<1
	}
	return to == o.Base && slices.ContainsFunc(h[1:], func(text []byte) bool {
		return len(text) > 3 && text[0]&0xf8 == 0x48 && text[1] == 0x63 && // movslq
			text[2]>>6 != 3 && text[2]&7 == 4 && text[3]>>6 == 2 // (base,index,4)
	})
}
