// Package cfg finds the control flow of a binary's functions: where instructions begin,
// and where jumps and calls lead.
//
// Breakpoints are written at these addresses, so a function is used only if the addresses are
// beyond doubt. Its symbol gives the start and the size. A linear sweep decodes its
// instructions, and must end at the function's end. Jumps into the function, as far as they
// are known, and addresses that the processor is known to have executed ([Program.Check])
// must lead to the start of an instruction. A function must not call an address inside
// itself, because data may follow such calls. A function that fails any of these checks is
// left out.
package cfg

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/symbols/rseq"
)

// Limits on the contents of a file.
const (
	maxFunctions    = 4 << 20
	maxFunctionSize = 4 << 20 // bytes
	maxSwept        = 64 << 20
)

// Program is the code of a binary. It is not safe for concurrent use.
type Program struct {
	file      *elffile.File
	names     *elffile.StringTable
	functions []*Function // by address
	sequences *rseq.Sequences
	swept     uint64 // bytes
}

// Function is a function of the symbol table.
type Function struct {
	// Start and End are link-time addresses, the end excluded.
	Start, End uint64

	name    uint32
	swept   bool
	problem string
	code    []byte
	decode  instruction.Decoder
	begins  []bool // by offset: an instruction begins here
	reached []bool // by offset: the instruction here is known to be executed
	// exclusive holds the ranges of offsets from a load-exclusive to its store-exclusive.
	exclusive [][2]uint64
}

// New returns the functions of f, which must stay open. It fails if f has no symbol table,
// is not for x86-64 or arm64, relocates its code when it is loaded, or if its restartable sequences
// are in doubt.
func New(f *elffile.File) (*Program, error) {
	decode := instruction.DecoderOf(f.Machine())
	if decode == nil {
		return nil, fmt.Errorf("%s: the instructions of %v are not supported", f.Name(), f.Machine())
	}
	sections, err := f.Sections()
	if err != nil {
		return nil, err
	}
	sequences, err := rseq.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	p := &Program{file: f, sequences: sequences}
	var table *elffile.Section
	for _, s := range sections {
		if s.Type == elf.SHT_SYMTAB {
			table = s
		}
	}
	if table == nil {
		return nil, fmt.Errorf("%s: no symbol table: use the unstripped file", f.Name())
	}
	p.names = f.SymbolNames(table)
	err = f.EachSymbol(table, func(s elffile.Symbol) bool {
		if s.Type != elf.STT_FUNC || s.Size == 0 || s.Size > maxFunctionSize || int(s.Section) >= len(sections) {
			return true
		}
		in := sections[s.Section]
		if in.Type != elf.SHT_PROGBITS || in.Flags&elf.SHF_EXECINSTR == 0 || s.Value < in.Addr || s.Value-in.Addr > in.Size || s.Size > in.Size-(s.Value-in.Addr) {
			return true
		}
		p.functions = append(p.functions, &Function{Start: s.Value, End: s.Value + s.Size, name: s.Name, decode: decode})
		return len(p.functions) < maxFunctions
	})
	if err != nil {
		return nil, err
	}
	p.arrange()
	if len(p.functions) == 0 {
		return nil, fmt.Errorf("%s: no functions in the symbol table", f.Name())
	}
	return p, nil
}

// arrange sorts the functions and merges symbols of the same range. It leaves out other
// functions that overlap.
func (p *Program) arrange() {
	slices.SortStableFunc(p.functions, func(a, b *Function) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	p.functions = slices.CompactFunc(p.functions, func(a, b *Function) bool { return a.Start == b.Start && a.End == b.End })
	var last *Function // the one that ends last
	for _, f := range p.functions {
		if last != nil && f.Start < last.End {
			f.leaveOut("overlaps another function")
			last.leaveOut("overlaps another function")
		}
		if last == nil || f.End > last.End {
			last = f
		}
	}
}

// Machine returns the machine that executes the code.
func (p *Program) Machine() elf.Machine { return p.file.Machine() }

// Name returns the function's name.
func (p *Program) Name(f *Function) string {
	if name := p.names.At(uint64(f.name)); len(name) > 0 {
		return string(name)
	}
	return fmt.Sprintf("%#x", f.Start)
}

// find returns the function that contains addr, or nil. If several overlap there, all are
// left out, so it may return any of them.
func (p *Program) find(addr uint64) *Function {
	i, found := slices.BinarySearchFunc(p.functions, addr, func(f *Function, addr uint64) int { return cmp.Compare(f.Start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= p.functions[i].End {
		return nil
	}
	return p.functions[i]
}

// Function returns the function that contains addr, and decodes it first if necessary. It
// returns nil if there is none, or if it is left out.
func (p *Program) Function(addr uint64) *Function {
	f := p.find(addr)
	if f == nil {
		return nil
	}
	p.sweep(f)
	if f.problem != "" {
		return nil
	}
	return f
}

// LeftOut returns the functions that were looked up but left out, with the reason.
func (p *Program) LeftOut() map[*Function]string {
	out := map[*Function]string{}
	for _, f := range p.functions {
		if f.swept && f.problem != "" {
			out[f] = f.problem
		}
	}
	return out
}

func (f *Function) leaveOut(problem string) {
	if f.problem == "" {
		f.problem = problem
	}
	f.code, f.begins, f.reached = nil, nil, nil
}

// Check reports whether an instruction begins at addr, which the processor has executed. If
// none does, it leaves out the function that contains addr.
func (p *Program) Check(addr uint64) bool {
	f := p.Function(addr)
	if f == nil {
		return false
	}
	if !f.begins[addr-f.Start] {
		f.leaveOut(fmt.Sprintf("is executed at %#x, where no decoded instruction begins", addr))
		return false
	}
	return true
}

// LeaveOut leaves out the function that contains addr.
func (p *Program) LeaveOut(addr uint64, problem string) {
	if f := p.find(addr); f != nil {
		p.sweep(f)
		f.leaveOut(problem)
	}
}

// Code returns the bytes of the function, nil if it is left out.
func (f *Function) Code() []byte { return f.code }

// sweep decodes the function.
func (p *Program) sweep(f *Function) {
	if f.swept {
		return
	}
	f.swept = true
	if f.problem != "" {
		return
	}
	size := f.End - f.Start
	offset, ok := p.file.Offset(f.Start)
	if p.swept += size; !ok || p.swept > maxSwept {
		f.leaveOut("is beyond the limit on decoded code")
		return
	}
	code, err := p.file.Bytes(int64(offset), size, "function")
	if err != nil {
		f.leaveOut("cannot be read: " + err.Error())
		return
	}
	f.code, f.begins, f.reached = code, make([]bool, size), make([]bool, size)
	var targets []uint64
	for at := uint64(0); at < size; {
		i, ok := f.decode(code[at:], f.Start+at)
		if !ok {
			f.leaveOut(fmt.Sprintf("has an unknown instruction at %#x", f.Start+at))
			return
		}
		f.begins[at] = true
		f.noteExclusive(at, i)
		// Code may call an address inside itself to get the address of data after the call.
		if i.Kind == instruction.Call && i.Target > f.Start && i.Target < f.End {
			f.leaveOut(fmt.Sprintf("calls an address inside itself at %#x: data may follow", f.Start+at))
			return
		}
		switch i.Kind {
		case instruction.ConditionalJump, instruction.CounterJump, instruction.Jump, instruction.Call:
			targets = append(targets, i.Target)
		}
		at += uint64(i.Size)
	}
	for _, to := range targets {
		// If g is not decoded yet, this jump is checked only when Reach or Check meets it.
		g := p.find(to)
		switch {
		case g == nil || !g.swept || g.problem != "":
		case !g.begins[to-g.Start]:
			g.leaveOut(fmt.Sprintf("is entered at %#x, where no decoded instruction begins", to))
			f.leaveOut(fmt.Sprintf("jumps to %#x, where no decoded instruction begins", to))
			return
		}
	}
}

// maxExclusive bounds the distance of a load-exclusive and its store-exclusive, in bytes. Processors
// allow only a few instructions between them.
const maxExclusive = 256

// noteExclusive notes the ranges of load-exclusive and store-exclusive instructions of arm64.
func (f *Function) noteExclusive(at uint64, i instruction.Instruction) {
	last := len(f.exclusive) - 1
	switch {
	case i.Exclusive == instruction.LoadExclusive:
		f.exclusive = append(f.exclusive, [2]uint64{at, at + maxExclusive})
	case i.Exclusive == instruction.EndExclusive && last >= 0:
		f.exclusive[last][1] = min(f.exclusive[last][1], at)
	}
}

// Exclusive reports whether the instruction at addr is between a load-exclusive and its
// store-exclusive, where an exception makes the store fail.
func (p *Program) Exclusive(addr uint64) bool {
	f := p.Function(addr)
	return f != nil && slices.ContainsFunc(f.exclusive, func(r [2]uint64) bool { return addr-f.Start >= r[0] && addr-f.Start <= r[1] })
}

// Restartable reports whether the instruction at addr is in a restartable sequence, in which no
// breakpoint must be in the code.
func (p *Program) Restartable(addr uint64) bool { return p.sequences.Check(addr) != nil }

// At returns the instruction at addr. It reports false if no instruction begins there, or if
// its function is left out.
func (p *Program) At(addr uint64) (instruction.Instruction, bool) {
	f := p.Function(addr)
	if f == nil || !f.begins[addr-f.Start] {
		return instruction.Instruction{}, false
	}
	return f.decode(f.code[addr-f.Start:], addr)
}

// Reach marks the code that is certainly executed once addr is executed: up to the next
// conditional or indirect jump, also in called functions. It calls found for each such jump, and
// for each indirect call, that was not reached before. It leaves out a function if no instruction
// begins at a reached address.
func (p *Program) Reach(addr uint64, found func(addr uint64, i instruction.Instruction)) {
	for rest := []uint64{addr}; len(rest) > 0; {
		at := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		for p.Check(at) {
			f := p.Function(at)
			if f.reached[at-f.Start] {
				break
			}
			f.reached[at-f.Start] = true
			i, ok := p.At(at)
			if !ok {
				break
			}
			next := at + uint64(i.Size)
			switch i.Kind {
			case instruction.ConditionalJump, instruction.IndirectJump, instruction.IndirectCall:
				found(at, i)
			case instruction.CounterJump:
				rest = append(rest, i.Target, next)
			case instruction.Jump, instruction.Call:
				rest = append(rest, i.Target)
			}
			if i.Kind.Ends() || i.Kind == instruction.ConditionalJump || i.Kind == instruction.CounterJump || next >= f.End {
				break
			}
			at = next
		}
	}
}
