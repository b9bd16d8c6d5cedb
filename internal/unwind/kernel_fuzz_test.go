package unwind_test

import (
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/unwindtest"
)

// machine describes an architecture: DWARF's numbers of the stack pointer, the frame
// pointer, the base register (-1 for none) and the last other register, whether calls
// leave the return address in a register, and the bits of addresses.
type machine struct {
	sp, fp, base, last int
	link               bool
	pcMask             uint64
}

var machines = map[elf.Machine]machine{
	elf.EM_X86_64:  {7, 6, 3, 15, false, bpf.FrameExact - 1},
	elf.EM_AARCH64: {31, 29, -1, 30, true, 1<<48 - 1},
}

// choices is a sequence of bytes from the fuzzer, repeated endlessly.
type choices struct {
	all  []byte
	next int
}

func (c *choices) byte() byte {
	if len(c.all) == 0 {
		return 0
	}
	c.next++
	return c.all[(c.next-1)%len(c.all)]
}

// kinds lists kinds of rules, those that continue the walk more often.
var kinds = [...]unwind.Kind{
	unwind.KindNone, unwind.KindUnsupported, unwind.KindEnd, unwind.KindSP, unwind.KindSP, unwind.KindSP,
	unwind.KindSP, unwind.KindSP, unwind.KindSP, unwind.KindFP, unwind.KindFP, unwind.KindRegister,
	unwind.KindDerefSP, unwind.KindDerefFP, unwind.KindPLT, unwind.KindSignal, unwind.KindIndexed,
	unwind.KindChain, unwind.KindChain,
}

// rule returns any valid rule.
func (c *choices) rule(m machine) unwind.Rule {
	offset := func() int32 { return int32(int8(c.byte())) * 8 }
	r := unwind.Rule{Kind: kinds[int(c.byte())%len(kinds)]}
	switch {
	case r.Kind < unwind.KindSP:
		return r
	case r.Kind == unwind.KindChain:
		return unwind.Chain(c.byte() % (unwind.ChainAtEnd + 1))
	}
	r.CFA = (int32(c.byte()%64) - 4) * 8
	switch r.Kind {
	case unwind.KindSignal:
		return r
	case unwind.KindSP, unwind.KindFP:
		if c.byte() < 4 {
			r.CFA++ // misaligns the stack
		}
		if b := c.byte(); m.base >= 0 && b >= 128 {
			r.Arg = []uint8{1, 2, 3, 40, unwind.BaseLost}[b%5]
		}
	case unwind.KindRegister, unwind.KindIndexed:
		if r.Arg = c.byte(); m.base >= 0 && r.Arg >= 128 {
			r.Arg = uint8(m.base)
		}
		r.Arg %= uint8(m.last + 1)
	case unwind.KindPLT:
		r.Arg = c.byte() % 16
	case unwind.KindDerefSP, unwind.KindDerefFP:
		r.Arg = c.byte()
	}
	slot := func(same bool) (unwind.Slot, int32) {
		if b := int32(c.byte()); b < 200 {
			return unwind.SlotCFA, -8 * (1 + b%4)
		}
		switch k := unwind.Slot(c.byte()) % (unwind.SlotUnknown + 1); {
		case k == unwind.SlotCFA, k == unwind.SlotSP, k == unwind.SlotFP:
			return k, offset()
		case k == unwind.SlotRegister:
			return k, int32(c.byte()) % int32(m.last+1)
		case k == unwind.SlotSame && !same:
			return unwind.SlotUnknown, 0
		default:
			return k, 0
		}
	}
	r.FPSlot, r.FP = slot(true)
	r.RASlot, r.RA = slot(m.link)
	return r
}

const (
	fuzzCode      = 0x401000
	fuzzBias      = 0x10000000
	fuzzStack     = 0x7ffe00000000
	fuzzStackSize = 4 * unwindtest.PageSize
)

// table returns a table with one segment and rules at random places.
func (c *choices) table(m machine) *unwind.Table {
	t := &unwind.Table{Rules: []unwind.Rule{{}}}
	for range c.byte()%32 + 1 {
		t.Rules = append(t.Rules, c.rule(m))
	}
	const blockSize = 1 << unwind.BlockShift
	seg := unwind.Segment{Addr: fuzzCode + uint64(c.byte())*16, Size: 4000}
	t.Segments = []unwind.Segment{seg}
	first := seg.Addr &^ (blockSize - 1)
	at := []uint64{first} // a segment's first block begins with a row
	for range c.byte() {
		at = append(at, seg.Addr+uint64(c.byte())*16)
	}
	for i := range uint64(24) { // the addresses in [choices.word]
		at = append(at, max(fuzzCode+4080+i*4, first))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	for block := first; block < seg.Addr+seg.Size; block += blockSize {
		t.Blocks = append(t.Blocks, uint32(len(t.Rows)))
		for len(at) > 0 && at[0] < block+blockSize {
			// A row holds the address above the rule's index.
			row := unwind.Row((at[0] - block) << (32 - unwind.BlockShift))
			t.Rows = append(t.Rows, row.WithRule(uint32(c.byte())%uint32(len(t.Rules))))
			at = at[1:]
		}
	}
	t.Blocks = append(t.Blocks, uint32(len(t.Rows)))
	return t
}

// word returns a word that a stack is likely to contain.
func (c *choices) word() uint64 {
	b, low := uint64(c.byte()), uint64(c.byte())
	switch b % 32 {
	case 0:
		return b + low
	case 1:
		return fuzzStack + low
	case 2, 3, 4, 5:
		return fuzzStack + (b<<8+low)%(fuzzStackSize+64)&^7
	default:
		return fuzzBias + fuzzCode + 4080 + (b<<8+low)%96 // in any table
	}
}

// memory returns the pages of a stack and of code.
func (c *choices) memory() map[uint64][]byte {
	pages := map[uint64][]byte{}
	for at := uint64(fuzzStack); at < fuzzStack+fuzzStackSize; at += unwindtest.PageSize {
		page := make([]byte, 0, unwindtest.PageSize)
		for len(page) < unwindtest.PageSize {
			page = binary.LittleEndian.AppendUint64(page, c.word())
		}
		pages[at] = page
	}
	// Code, for which only calls matter.
	for at := uint64(fuzzBias + fuzzCode); at < fuzzBias+fuzzCode+3*unwindtest.PageSize; at += unwindtest.PageSize {
		page := make([]byte, 0, unwindtest.PageSize)
		for len(page) < unwindtest.PageSize {
			page = append(page, []byte{0xe8, 0xff, 0x14, 0x94, 0xd6, 0x3f, 0xd0, 0x90}[c.byte()%8])
		}
		pages[at] = page
	}
	return pages
}

// FuzzKernelWalker compares the stacks of the kernel's walker and [unwind.Walker] for
// arbitrary rules and memory.
func FuzzKernelWalker(f *testing.F) {
	testenv.Slow(f)
	walkers := map[elf.Machine]*unwindtest.Kernel{}
	for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		walkers[m] = unwindtest.NewKernel(f, m)
		random := rand.New(rand.NewPCG(1, uint64(m)))
		for range 200 {
			b := make([]byte, 50+random.IntN(3000))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			f.Add(b, m == elf.EM_AARCH64)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, isARM bool) {
		elfMachine := elf.EM_X86_64
		if isARM {
			elfMachine = elf.EM_AARCH64
		}
		k, m, c := walkers[elfMachine], machines[elfMachine], &choices{all: b}
		// The table begins at any word of a page, so it may cross pages.
		k.Forget(unwindtest.PageWords - int(c.byte()))
		table := c.table(m)
		seg := table.Segments[0]
		start := seg.Addr + fuzzBias
		code := unwind.Code{Table: table}
		if b := c.byte(); b < 200 {
			code.Fallback = unwind.Chain(b % (unwind.ChainAtEnd + 1))
		}
		layout := k.LayOut([]unwindtest.Mapped{{Start: start, End: start + seg.Size, Code: code}})

		regs := unwind.Registers{PC: start + uint64(c.byte())*16}
		for i := range m.last + 1 {
			regs.R[i] = c.word()
		}
		regs.R[m.sp] = fuzzStack + uint64(c.byte())*8
		regs.R[m.fp] = regs.R[m.sp] + uint64(c.byte())*8
		pages := c.memory()
		k.SetMemory(pages)
		memory := unwindtest.Recorder{From: func(uint64, []byte) bool { return false }, Pages: pages}
		w := unwind.Walker{
			Machine: elfMachine,
			PCMask:  m.pcMask,
			Find: func(addr uint64) (unwind.Code, uint64, bool) {
				return code, fuzzBias, addr-start < seg.Size
			},
			Read: memory.Read,
		}
		want, wantEnd := w.Walk(regs, nil, bpf.MaxDepth)
		want = unwindtest.AsRecorded(want)
		for range 2 { // with a cold and a warm cache
			got, end := k.Walk(t, regs, layout, m.pcMask, bpf.UnwindByBoth)
			got = unwindtest.AsRecorded(got)
			if !slices.Equal(got, want) || end != wantEnd {
				t.Fatalf("got %v (end %d), want %v (%v)", got, end, want, wantEnd)
			}
		}
		_, _ = k.Walk(t, regs, layout, m.pcMask, bpf.UnwindByFramePointers)

		// A corrupt table must do no harm.
		for i := range table.Blocks {
			table.Blocks[i] = uint32(c.word())
		}
		for i := range table.Rows {
			table.Rows[i] = unwind.Row(c.word() * 0x9e3779b1)
		}
		k.Forget(int(c.byte()))
		layout = k.LayOut([]unwindtest.Mapped{{Start: start, End: start + seg.Size, Code: code}})
		_, _ = k.Walk(t, regs, layout, m.pcMask, bpf.UnwindByBoth)
	})
}
