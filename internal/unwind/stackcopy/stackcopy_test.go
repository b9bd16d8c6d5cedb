package stackcopy

import (
	"debug/elf"
	"slices"
	"testing"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
)

// Code of 256 bytes each: of a function that switches stacks, of a Go function, of C without frame pointers, of the outermost
// function, and of C that has a frame pointer.
const (
	switches = 0x1000 + 256*iota
	golang
	plain
	outermost
	framed
	end
)

// testCode returns the code at an address.
func testCode(addr uint64) (c unwind.Code, bias uint64, ok bool) {
	table := func(r unwind.Rule) *unwind.Table {
		return &unwind.Table{
			Segments: []unwind.Segment{{Size: 1 << 16}}, Rules: []unwind.Rule{r},
			Blocks: append([]uint32{0}, slices.Repeat([]uint32{1}, 64)...), Rows: []unwind.Row{0},
		}
	}
	switch {
	case addr < switches || addr >= end:
		return c, 0, false
	case addr < golang:
		c.Table = table(unwind.Rule{Kind: unwind.KindSwitch, CFA: 16, FPSlot: unwind.SlotFP, RASlot: unwind.SlotFP, RA: 8})
	case addr < plain:
		c = unwind.Code{Fallback: unwind.Chain(unwind.ChainStacks)}
	case addr < outermost:
		c.Table = table(unwind.Rule{Kind: unwind.KindSP, CFA: 16, RASlot: unwind.SlotCFA, RA: -8})
	case addr < framed:
		c.Table = table(unwind.Rule{Kind: unwind.KindEnd})
	default:
		c.Table = table(unwind.Rule{Kind: unwind.KindFP, CFA: 16, FPSlot: unwind.SlotCFA, FP: -16, RASlot: unwind.SlotCFA, RA: -8})
	}
	return c, 0, true
}

// A stack that leaves its copy continues by the kernel's call chain, where functions keep frame pointers.
func TestContinue(t *testing.T) {
	const sp, elsewhere = 0x7ffd0000, 0xc000100000
	w := New(elf.EM_X86_64, testCode)
	regs := make([]uint64, 20)
	regs[6], regs[7], regs[8] = elsewhere, sp, plain+8 // fp, sp, pc
	state := perfevent.UserState{ABI: perfevent.ABI64, Mask: 0xff0fff, Regs: words(regs), Stack: words([]uint64{0, switches + 8}), Full: true}
	const user = 1<<64 - 512
	for name, test := range map[string]struct {
		chain []uint64
		want  []uint64
		end   stackend.End
	}{
		"to the outermost function": {[]uint64{user, plain + 8, switches + 8, golang + 8, framed + 8, outermost + 8}, []uint64{golang + 8, framed + 8, outermost + 8}, stackend.Complete},
		"as far as the kernel came": {[]uint64{user, plain + 8, switches + 8, golang + 8}, []uint64{golang + 8}, stackend.FramePointer},
		"to code without":           {[]uint64{user, plain + 8, switches + 8, golang + 8, plain + 16, golang + 16}, []uint64{golang + 8, plain + 16}, stackend.NoTable},
		"to no code":                {[]uint64{user, plain + 8, switches + 8, golang + 8, 5}, []uint64{golang + 8}, stackend.FramePointer},
		"another chain":             {[]uint64{user, plain + 8, golang + 8}, nil, stackend.Fault},
		"recursion":                 {[]uint64{user, switches + 8, golang + 8, switches + 8, golang + 16}, nil, stackend.Fault},
		"none":                      {nil, nil, stackend.Fault},
	} {
		frames, end := w.Walk(state)
		if len(frames) != 2 || end != stackend.Fault {
			t.Fatalf("got %v (%v) from the copy", frames, end)
		}
		frames, end = w.Continue(frames, end, words(test.chain))
		var got []uint64
		for _, f := range frames[2:] {
			got = append(got, f.PC)
		}
		if !slices.Equal(got, test.want) || end != test.end {
			t.Errorf("%s: got %#x (%v), want %#x (%v)", name, got, end, test.want, test.end)
		}
	}
}
