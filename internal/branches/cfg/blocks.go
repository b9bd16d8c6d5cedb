package cfg

import (
	"cmp"
	"slices"

	"fulgur/internal/symbols/instruction"
)

// Block is a basic block: a sequence of instructions that is executed from its start to its
// end. Calls do not end a block.
type Block struct {
	// Function is the function that contains the block.
	Function *Function
	// Start and End are its link-time addresses, the end excluded.
	Start, End uint64
	// Instructions is the number of instructions.
	Instructions int
	// Last is the last instruction, at LastAddress.
	Last        instruction.Instruction
	LastAddress uint64
	// Calls are the calls in the block.
	Calls []Call
}

// Call is a call of a function.
type Call struct {
	// Address is the address of the call, and Next its return address.
	Address, Next uint64
	// Target is the address of the function, or 0 if it is not known.
	Target uint64
}

// Blocks returns the blocks that contain reached instructions, sorted by address. Blocks
// begin at the targets of direct jumps and at entries.
func (p *Program) Blocks(entries []uint64) []*Block {
	leaders := map[uint64]bool{}
	for _, addr := range entries {
		leaders[addr] = true
	}
	var used []*Function
	for _, f := range p.functions {
		if f.begins == nil || !slices.Contains(f.reached, true) {
			continue
		}
		used = append(used, f)
		leaders[f.Start] = true
		f.each(func(addr uint64, i instruction.Instruction) {
			next := addr + uint64(i.Size)
			switch i.Kind {
			case instruction.ConditionalJump, instruction.CounterJump, instruction.Jump:
				leaders[i.Target], leaders[next] = true, true
			case instruction.IndirectJump, instruction.Return, instruction.Stop:
				leaders[next] = true
			}
		})
	}
	var blocks []*Block
	for _, f := range used {
		var b *Block
		reached := false
		end := func() {
			if b != nil && reached {
				blocks = append(blocks, b)
			}
		}
		f.each(func(addr uint64, i instruction.Instruction) {
			if b == nil || leaders[addr] {
				end()
				b, reached = &Block{Function: f, Start: addr}, false
			}
			next := addr + uint64(i.Size)
			b.End, b.Last, b.LastAddress = next, i, addr
			b.Instructions++
			reached = reached || f.reached[addr-f.Start]
			if i.Kind == instruction.Call || i.Kind == instruction.IndirectCall {
				b.Calls = append(b.Calls, Call{Address: addr, Next: next, Target: i.Target})
			}
		})
		end()
	}
	return blocks
}

// each calls visit with every instruction of f.
func (f *Function) each(visit func(addr uint64, i instruction.Instruction)) {
	for at := 0; at < len(f.code); {
		i, ok := f.decode(f.code[at:], f.Start+uint64(at))
		if !ok {
			return
		}
		visit(f.Start+uint64(at), i)
		at += i.Size
	}
}

// Find returns the index of the block in blocks that contains addr, or -1.
func Find(blocks []*Block, addr uint64) int {
	i, found := slices.BinarySearchFunc(blocks, addr, func(b *Block, addr uint64) int { return cmp.Compare(b.Start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= blocks[i].End {
		return -1
	}
	return i
}
