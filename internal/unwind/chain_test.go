package unwind_test

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
	"fulgur/internal/unwind/unwindtest"
)

// TestChainARM64 walks from code that only keeps frame pointers to a function with a table. On arm64, a
// frame pointer points anywhere into its frame. So the caller's stack pointer is known only if it leads to
// the caller's own record. Otherwise, the stack ends rather than at a caller of an earlier call.
func TestChainARM64(t *testing.T) {
	const (
		generated = iota // keeps frame pointers
		standard         // the same, known to have its record at the end of its frame
		compiled         // finds its frame by the stack pointer, and has its record at the start of it
		byFP
		leafless // keeps no frame pointer
		stale    // was called before
		outermost
		functions
	)
	const size = 64 // of a function, in bytes
	record := func(k unwind.Kind, cfa int32) unwind.Rule {
		return unwind.Rule{Kind: k, CFA: cfa, FPSlot: unwind.SlotCFA, FP: -cfa, RASlot: unwind.SlotCFA, RA: 8 - cfa}
	}
	table := &unwind.Table{
		Segments: []unwind.Segment{{Addr: 0x400000, Size: functions * size}},
		Blocks:   []uint32{0, functions},
		Rules: []unwind.Rule{
			{}, unwind.Chain(unwind.ChainAny), unwind.Chain(unwind.ChainAtEnd), record(unwind.KindSP, 48), record(unwind.KindFP, 48),
			{Kind: unwind.KindSP, CFA: 32, RASlot: unwind.SlotCFA, RA: -32}, {Kind: unwind.KindEnd}, {Kind: unwind.KindEnd},
		},
	}
	for i := range uint32(functions) {
		table.Rows = append(table.Rows, unwind.Row(i*size<<(32-unwind.BlockShift)).WithRule(i+1))
	}
	at := func(function uint64) uint64 { return 0x400000 + function*size + 16 }
	k := unwindtest.NewKernel(t, elf.EM_AARCH64)
	layout := k.LayOut([]unwindtest.Mapped{{Start: 0x400000, End: 0x400000 + functions*size, Code: unwind.Code{Table: table}}})
	const sp = 0x7ffe00000100
	for _, test := range []struct {
		name   string
		pc, fp uint64            // of the innermost frame
		words  map[uint64]uint64 // by distance from sp
		want   []uint64
		end    stackend.End
	}{
		{"record at the end of the frame", at(generated), sp + 32, map[uint64]uint64{
			32: sp + 48, 40: at(compiled), 48: 0, 56: at(outermost),
		}, []uint64{at(generated), at(compiled), at(outermost)}, stackend.Complete},
		{"record at the start of the frame", at(generated), sp, map[uint64]uint64{
			0: sp + 64, 8: at(compiled), 16: sp + 48, 24: at(stale), 64: 0, 72: at(outermost),
		}, []uint64{at(generated), at(compiled)}, stackend.Register},
		{"caller that has a frame pointer", at(generated), sp, map[uint64]uint64{
			0: sp + 64, 8: at(byFP), 16: sp + 48, 24: at(stale), 64: 0, 72: at(outermost),
		}, []uint64{at(generated), at(byFP), at(outermost)}, stackend.Complete},
		{"caller of that", at(generated), sp, map[uint64]uint64{
			0: sp + 64, 8: at(byFP), 64: sp + 112, 72: at(leafless), 112: at(outermost),
		}, []uint64{at(generated), at(byFP), at(leafless), at(outermost)}, stackend.Complete},
		{"caller without a frame pointer", at(generated), sp, map[uint64]uint64{
			0: sp + 64, 8: at(leafless), 16: at(stale), 64: 0,
		}, []uint64{at(generated), at(leafless)}, stackend.Register},
		{"known record, caller without a frame pointer", at(standard), sp + 32, map[uint64]uint64{
			32: 0, 40: at(leafless), 48: at(outermost),
		}, []uint64{at(standard), at(leafless), at(outermost)}, stackend.Complete},
	} {
		t.Run(test.name, func(t *testing.T) {
			page := make([]byte, unwindtest.PageSize)
			for off, word := range test.words {
				binary.LittleEndian.PutUint64(page[sp%unwindtest.PageSize+off:], word)
			}
			pages := map[uint64][]byte{sp &^ (unwindtest.PageSize - 1): page}
			k.SetMemory(pages)
			regs := unwind.Registers{PC: test.pc}
			regs.R[31], regs.R[29] = sp, test.fp
			memory := unwindtest.Recorder{From: func(uint64, []byte) bool { return false }, Pages: pages}
			w := unwind.Walker{Machine: elf.EM_AARCH64, PCMask: 1<<48 - 1, Read: memory.Read, Find: func(addr uint64) (unwind.Code, uint64, bool) {
				return unwind.Code{Table: table}, 0, addr-0x400000 < functions*size
			}}
			walks := []func() ([]unwind.Frame, stackend.End){
				func() ([]unwind.Frame, stackend.End) { return w.Walk(regs, nil, bpf.MaxDepth) },
				func() ([]unwind.Frame, stackend.End) { return k.Walk(t, regs, layout, 1<<48-1, bpf.UnwindByBoth) },
			}
			for _, walk := range append(walks, walks[1]) { // in the kernel with a cold and a warm cache
				frames, end := walk()
				var got []uint64
				for _, f := range frames {
					got = append(got, f.PC)
				}
				if !slices.Equal(got, test.want) || end != test.end {
					t.Errorf("got %#x (%v), want %#x (%v)", got, end, test.want, test.end)
				}
			}
		})
	}
}
