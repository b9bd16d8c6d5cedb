package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/dwarfdata"
	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/unwind/stackend"
)

// checkTable fails the test unless a walker without checks could use the table.
func checkTable(t *testing.T, table *Table) {
	t.Helper()
	if table.Rules[0] != (Rule{}) {
		t.Fatalf("got first rule %v, want %v", table.Rules[0], Rule{})
	}
	for i, s := range table.Segments {
		blocks := table.Blocks[s.FirstBlock:]
		if i+1 < len(table.Segments) {
			blocks = table.Blocks[s.FirstBlock:table.Segments[i+1].FirstBlock]
		}
		if n := (s.Addr+s.Size-1)>>BlockShift - s.Addr>>BlockShift + 2; uint64(len(blocks)) != n {
			t.Fatalf("got segment %+v with %d blocks, want %d", s, len(blocks), n)
		}
		for b := range blocks[1:] {
			rows := table.Rows[blocks[b]:blocks[b+1]]
			if b == 0 && (len(rows) == 0 || rows[0].Low() != 0) {
				t.Fatal("got a segment that does not begin with a row")
			}
			if !slices.IsSortedFunc(rows, func(a, b Row) int { return cmp.Compare(a.Low(), b.Low()) }) {
				t.Fatalf("got unsorted rows: %v", rows)
			}
			for _, r := range rows {
				if int(r.Rule()) >= len(table.Rules) {
					t.Fatalf("got a row with rule %d of %d", r.Rule(), len(table.Rules))
				}
			}
		}
		if last := blocks[len(blocks)-1]; i+1 == len(table.Segments) && int(last) != len(table.Rows) {
			t.Fatalf("got %d rows, but the last block ends at %d", len(table.Rows), last)
		}
	}
}

// FuzzCompile compiles arbitrary bytes. The table must not depend on the number of workers.
func FuzzCompile(f *testing.F) {
	for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		for _, eh := range []bool{true, false} {
			section := frames{eh: eh, wide: !eh}
			section.cie(m, "zR", defaultCIE(m)...)
			section.fde(codeAddr, 64, true, cfaAdvanceLoc|4, cfaDefCFAOffset, 32, cfaRememberState,
				cfaAdvanceLoc1, 9, cfaExpression, amd64FP, 2, opBreg0+amd64SP, 8, cfaRestoreState)
			section.fde(codeAddr+96, 64, true, cfaDefCFAExpression, 3, opBreg0+amd64FP, 0x78, opDeref)
			f.Add(section.b, section.b, m == elf.EM_AARCH64)
		}
	}
	f.Fuzz(func(t *testing.T, eh, debug []byte, isARM bool) {
		m := elf.EM_X86_64
		if isARM {
			m = elf.EM_AARCH64
		}
		file := madeUp(m, nil,
			elftest.Section{Name: ".eh_frame", Addr: 0x600000, Content: eh},
			elftest.Section{Name: ".debug_frame", Content: debug})
		one, err := compileBytes(t, file, Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		checkTable(t, one)
		if n := len(eh) + len(debug) + 10; len(one.Rows) > 2*n {
			t.Fatalf("got %d rows from %d bytes", len(one.Rows), n)
		}
		for addr := uint64(codeAddr - 1); addr < codeAddr+64<<10; addr += 7 {
			_ = one.Lookup(addr).String()
		}
		many, err := compileBytes(t, file, Options{Workers: 3})
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(one, many, gocmp.FilterPath(
			func(p gocmp.Path) bool { return p.Last().String() == ".Damage" }, gocmp.Ignore())); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzProgram runs arbitrary programs of a CIE and an FDE.
func FuzzProgram(f *testing.F) {
	f.Add(defaultCIE(elf.EM_X86_64), program(
		cfaAdvanceLoc|1, cfaDefCFAOffset, 16, cfaOffset|amd64FP, 2, cfaRememberState, cfaAdvanceLoc1, 3,
		cfaDefCFAExpression, expr(opBreg0+amd64SP, 8, opBreg0+amd64RA, 0, opLit0+15, opAnd, opLit0+11, opGe, opLit0+3, opShl, opPlus),
		cfaAdvanceLoc2, 3, 0, cfaRestoreState, cfaDefCFARegister, amd64FP, cfaGNUArgsSize, 3), byte(0))
	f.Add(defaultCIE(elf.EM_AARCH64), program(
		cfaAArch64NegateRAState, cfaAdvanceLoc|1, cfaOffset|arm64RA, 1, cfaRegister, arm64FP, 3, cfaSetLoc, 9), byte(3))
	f.Fuzz(func(t *testing.T, initial, function []byte, flags byte) {
		arch := amd64
		if flags&1 != 0 {
			arch = arm64
		}
		c := &cie{CIE: &callframe.CIE{CodeAlign: 4, DataAlign: -8, RA: arch.ra, AddrSize: 8, Signal: flags&2 != 0}}
		m := machine{arch: arch, cie: c, size: 1, emit: func(uint64, *Rule) {}}
		if !m.run(&dwarfdata.Reader{Data: initial}, 0, 0) {
			return
		}
		c.initial = m.state
		last, n := uint64(0), 0
		m.size = 1 << 16
		m.emit = func(off uint64, r *Rule) {
			if off < last || off >= m.size {
				t.Fatalf("got a row at %#x after one at %#x", off, last)
			}
			last = off
			n++
			_ = r.String()
		}
		m.run(&dwarfdata.Reader{Data: function}, 0, 1<<20)
		if n == 0 || n > len(function)+1 {
			t.Fatalf("got %d rows from %d bytes", n, len(function))
		}
	})
}

// FuzzWalk walks arbitrary memory with arbitrary rules.
func FuzzWalk(f *testing.F) {
	f.Add([]byte{byte(KindSP), 0, byte(SlotCFA), byte(SlotCFA), 16, 0, 0xf0, 0xff, 0xf8, 0xff}, make([]byte, 200), false)
	f.Add([]byte{byte(KindSignal), 0, 0, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 900), true)
	f.Fuzz(func(t *testing.T, rules, memory []byte, isARM bool) {
		table := &Table{Segments: []Segment{{Size: 1 << 20}}, Rules: []Rule{{}}, Rows: []Row{0}}
		for ; len(rules) >= 10 && len(table.Rules) < 100; rules = rules[10:] {
			word := func(i int) int32 { return int32(int16(binary.LittleEndian.Uint16(rules[i:]))) }
			table.Rules = append(table.Rules, Rule{
				Kind: Kind(rules[0]), Arg: rules[1], FPSlot: Slot(rules[2]), RASlot: Slot(rules[3]),
				CFA: word(4), FP: word(6), RA: word(8),
			})
		}
		for i := range 1 << (20 - BlockShift) {
			table.Blocks = append(table.Blocks, uint32(len(table.Rows)-1))
			table.Rows = append(table.Rows, newRow(0, uint32(i%len(table.Rules))))
		}
		table.Blocks = append(table.Blocks, uint32(len(table.Rows)-1))
		w := Walker{
			Machine: elf.EM_X86_64,
			Find:    func(uint64) (Code, uint64, bool) { return Code{Table: table}, 0, true },
			Read: func(addr uint64, buf []byte) bool {
				if addr > uint64(len(memory)) || uint64(len(buf)) > uint64(len(memory))-addr {
					return false
				}
				copy(buf, memory[addr:])
				return true
			},
		}
		if isARM {
			w.Machine = elf.EM_AARCH64
		}
		regs := Registers{PC: 1 << BlockShift}
		frames, end := w.Walk(regs, nil, 128)
		if len(frames) == 0 || len(frames) > 128 || end == stackend.Depth && len(frames) != 128 {
			t.Fatalf("got %d frames, %v; want 1 to 128", len(frames), end)
		}
	})
}

// FuzzCode makes rules from code. Whatever the code is, the analysis ends, and adds rules only where it may.
func FuzzCode(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x89, 0xe5, 0x53, 0x5b, 0x5d, 0xc3}, uint16(0), false)
	f.Add([]byte{0x85, 0xff, 0x74, 0x08, 0x48, 0x83, 0xec, 0x18, 0x48, 0x83, 0xc4, 0x18, 0xc3}, uint16(0), false)
	// lea 16(%rip), %r14; lea 8(%rip), %rax; cmovne %rax, %r14; jmp *%r14
	f.Add([]byte{
		0x4c, 0x8d, 0x35, 0x10, 0, 0, 0, 0x48, 0x8d, 0x05, 0x08, 0, 0, 0, 0x4c, 0x0f, 0x45, 0xf0, 0x41, 0xff, 0xe6, 0xc3, 0xc3,
	}, uint16(3), false)
	// cmp $3, %edi; ja; lea table(%rip), %rdx; movslq (%rdx,%rdi,4), %rax; add %rdx, %rax; jmp *%rax
	f.Add([]byte{
		0x83, 0xff, 0x03, 0x77, 0xfb, 0x48, 0x8d, 0x15, 8, 0, 0, 0, 0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0,
	}, uint16(5), false)
	// stp x29, x30, [sp, #-32]!; mov x29, sp; ldp x29, x30, [sp], #32; ret
	f.Add([]byte{0xfd, 0x7b, 0xbe, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0xfd, 0x7b, 0xc2, 0xa8, 0xc0, 0x03, 0x5f, 0xd6}, uint16(4), true)
	// cmp w0, #2; b.hi; adr x1, table; ldrb w1, [x1, w0, uxtw]; adr x2, 16; add x1, x2, w1, sxtb #2; br x1; ret; sub sp, sp, #16; ret
	f.Add([]byte{
		0x1f, 0x08, 0x00, 0x71, 0xe8, 0x00, 0x00, 0x54, 0x01, 0x01, 0x00, 0x10, 0x21, 0x48, 0x60, 0x38, 0x62, 0x00, 0x00, 0x10,
		0x41, 0x88, 0x21, 0x8b, 0x20, 0x00, 0x1f, 0xd6, 0xc0, 0x03, 0x5f, 0xd6, 0xff, 0x43, 0x00, 0xd1, 0xc0, 0x03, 0x5f, 0xd6, 0, 1, 2, 3,
	}, uint16(0), true)
	f.Fuzz(func(t *testing.T, code []byte, maybe uint16, isARM bool) {
		m := elf.EM_X86_64
		if isARM {
			m = elf.EM_AARCH64
		}
		file, err := elffileOf(t, madeUpOf(m, append(code, make([]byte, 64)...)))
		if err != nil {
			t.Fatal(err)
		}
		b := &builder{file: file, arch: archOf(m), code: newCodeRanges(file)}
		c := newCodeRules(b)
		c.addSure(codeAddr)
		c.addMaybe(codeAddr + uint64(maybe))
		c.search()
		if most := stepsOfByte*(len(code)+64) + maxFunctionSteps + 2*maxTable; c.steps > most {
			t.Errorf("took %d steps, want at most %d", c.steps, most)
		}
		for _, r := range c.rows {
			if c.gap(r.addr) == nil {
				t.Fatalf("got a rule at %#x, outside the code", r.addr)
			}
		}
		for _, r := range c.rules.list {
			if r.CFA < -maxCodeFrame || r.CFA > maxCodeFrame {
				t.Fatalf("got %v, want a frame of at most %d bytes", r, maxCodeFrame)
			}
		}
		c.finish()
		checkTable(t, b.table())
	})
}
