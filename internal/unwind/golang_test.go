package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/elffile/elftest"
)

// goFunction is a function in a synthetic Go program.
type goFunction struct {
	name  string
	flags byte
	// sizes are pairs of the distance of the stack pointer from its value at the entry, and the end
	// of the code where it applies, from the entry.
	sizes []int64
	code  []byte
}

// Flags of functions: abi.FuncFlag.
const (
	topFrame = 1 << iota
	spWrite
	assembly
)

// goTable returns Go's function table of functions of 256 bytes each.
func goTable(m elf.Machine, functions []goFunction) []byte {
	const header, recordSize = 8 + 8*8, 44
	quantum := byte(1)
	if m == elf.EM_AARCH64 {
		quantum = 4
	}
	names, values := []byte{}, []byte{0}
	var index, records []byte
	indexSize := 8*len(functions) + 4
	for i, f := range functions {
		index = binary.LittleEndian.AppendUint32(index, uint32(256*i))
		index = binary.LittleEndian.AppendUint32(index, uint32(indexSize+len(records)))
		record := make([]byte, recordSize)
		for at, v := range map[int]uint32{0: uint32(256 * i), 4: uint32(len(names)), 16: uint32(len(values))} {
			binary.LittleEndian.PutUint32(record[at:], v)
		}
		record[recordSize-3] = f.flags
		records = append(records, record...)
		names = append(names, f.name+"\x00"...)
		size, end := int64(-1), int64(0)
		for s := range slices.Chunk(f.sizes, 2) {
			values = binary.AppendVarint(values, s[0]-size)
			values = binary.AppendUvarint(values, uint64(s[1]-end)/uint64(quantum))
			size, end = s[0], s[1]
		}
		values = append(values, 0)
	}
	index = binary.LittleEndian.AppendUint32(index, uint32(256*len(functions)))
	table := append(binary.LittleEndian.AppendUint32(nil, 0xfffffff1), 0, 0, quantum, 8)
	for _, word := range []uint64{uint64(len(functions)), 0, codeAddr} {
		table = binary.LittleEndian.AppendUint64(table, word)
	}
	at := uint64(header)
	for _, part := range [][]byte{names, nil, nil, values, nil} {
		table = binary.LittleEndian.AppendUint64(table, at)
		at += uint64(len(part))
	}
	return slices.Concat(table, names, values, index, records)
}

// goProgram returns a Go program with functions of 256 bytes each.
func goProgram(m elf.Machine, functions []goFunction) []byte {
	code := make([]byte, 256*len(functions))
	for i, f := range functions {
		copy(code[256*i:], f.code)
	}
	return madeUp(m, code, goBuildinfo, elftest.Section{Name: ".gopclntab", Addr: 0x600000, Content: goTable(m, functions)})
}

// instructions returns the code of arm64 instructions.
func instructions(words ...uint32) (code []byte) {
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

var goX86 = []goFunction{
	{"main.leaf", 0, []int64{0, 16}, nil},
	{"main.framed", 0, []int64{0, 1, 8, 4, 64, 32, 8, 36, 0, 48}, nil},
	{"main.unknown", 0, []int64{-1, 8, 3, 16}, nil},
	{"runtime.memmove", assembly, []int64{0, 32}, nil},
	{"runtime.systemstack", assembly | spWrite, []int64{0, 1, 8, 32, 0, 40}, []byte{0x55, 0x48, 0x89, 0xe5}},
	{"runtime.gogo", assembly | spWrite, []int64{0, 16}, nil},
	{"runtime.goexit", assembly | topFrame, []int64{0, 16}, nil},
	{"runtime.sigtramp", assembly | topFrame, []int64{0, 1, 8, 2, 48, 40}, []byte{0x9c, 0xfc, 0x48, 0x89, 0x6c, 0x24, 0x18}},
	{"runtime.sigreturn__sigaction", assembly, []int64{0, 16}, amd64.sigreturn},
	{"gcWriteBarrier", assembly, []int64{0, 4, 112, 40}, nil},
	{"old", assembly | spWrite, []int64{0, 4, 24, 64}, []byte{0, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0x8d, 0x6c, 0x24, 0x10}},
	{"runtime.morestack", assembly | spWrite, []int64{0, 64}, []byte{
		0x64, 0x48, 0x8b, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, // mov %fs:-8, %rdi
		0x48, 0x89, 0x6f, 0x60, // mov %rbp, 96(%rdi)
		0x48, 0x8b, 0x63, 0x38, // mov 56(%rbx), %rsp
	}},
	{"_rt0_amd64", assembly, []int64{0, 16}, nil},
	{"example.com/a.aligned", assembly | spWrite, []int64{0, 32}, []byte{0x48, 0x89, 0xe3, 0x48, 0x83, 0xe4, 0xf0}}, // mov %rsp, %rbx; and $-16, %rsp
}

var goARM64 = []goFunction{
	{"main.leaf", 0, []int64{0, 16}, nil},
	{"main.framed", 0, []int64{0, 8, 48, 32, 0, 36}, nil},
	{"runtime.systemstack", assembly | spWrite, []int64{0, 8, 32, 40, 0, 48},
		instructions(0, 0xf81e0ffe, 0xf81f83fd, 0xd10023fd)}, // str x30, [sp, #-32]!; stur x29, [sp, #-8]; sub x29, sp, #8
	{"crosscall2", assembly, []int64{0, 4, 192, 40, 0, 44}, instructions(0, 0xa90087e0, 0xa90b7bfd)}, // stp x29, x30, [sp, #176]
	{"runtime.asyncPreempt", assembly, []int64{0, 8, 496, 40}, nil},
	{"runtime.sigpanic", 0, []int64{0, 4, 32, 40}, nil},
	{"memmove", assembly, []int64{0, 4, 16, 40}, nil},
	{"runtime.morestack", assembly | spWrite, []int64{0, 64}, instructions(0, 0x9100001f)},
}

// TestGo compiles Go programs.
func TestGo(t *testing.T) {
	const none, x30 = "none", "cfa=sp+0 fp=same ra=same"
	x86 := func(cfa int, fp string) string { return fmt.Sprintf("cfa=sp%+d base=unknown fp=%s ra=cfa-8", cfa, fp) }
	for _, test := range []struct {
		machine   elf.Machine
		functions []goFunction
		want      [][]string
	}{
		{elf.EM_X86_64, goX86, [][]string{
			{"0x0 " + x86(8, "same"), "0x10 none"},
			{"0x0 " + x86(8, "same"), "0x1 " + x86(16, "cfa-16"), "0x4 " + x86(72, "cfa-16"), "0x20 " + x86(16, "cfa-16"), "0x24 " + x86(8, "same"), "0x30 none"},
			{"0x0 none"},
			{"0x0 " + x86(8, "same"), "0x20 none"},
			{"0x0 " + x86(8, "same"), "0x1 " + x86(16, "cfa-16"), "0x4 cfa=other stack at fp+16 fp=fp+0 ra=fp+8", "0x20 " + x86(8, "same"), "0x28 none"},
			{"0x0 none"},
			{"0x0 end"},
			// The byte before the trampoline belongs to it.
			{"0x0 " + x86(8, "same"), "0x1 " + x86(16, "same"), "0x2 " + x86(56, "same"), "0x7 " + x86(56, "cfa-32"), "0x28 none", "0xff signal frame at sp+0"},
			{"0x0 signal frame at sp+0"},
			{"0x0 " + x86(8, "same"), "0x4 " + x86(120, "same"), "0x28 none"},
			{"0x0 " + x86(8, "same"), "0x4 " + x86(32, "cfa-16"), "0xe cfa=other stack at fp+16 fp=fp+0 ra=fp+8", "0x40 none"},
			{"0x0 " + x86(8, "same"), "0x11 goroutine at tp-8 m+184 g+96"},
			{"0x0 end"},
			{"0x0 " + x86(8, "same"), "0x1 unsupported"},
		}},
		{elf.EM_AARCH64, goARM64, [][]string{
			{"0x0 " + x30, "0x10 none"},
			{"0x0 " + x30, "0x8 cfa=sp+48 fp=cfa-56 ra=cfa-48", "0x20 " + x30, "0x24 none"},
			{"0x0 " + x30, "0x8 cfa=sp+32 fp=cfa-40 ra=cfa-32", "0x10 cfa=other stack at fp+40 fp=fp+0 ra=fp+8", "0x28 " + x30, "0x30 none"},
			{"0x0 " + x30, "0x4 cfa=sp+192 fp=same ra=same", "0xc cfa=sp+192 fp=cfa-16 ra=cfa-8", "0x28 " + x30, "0x2c none"},
			{"0x0 cfa=sp+16 fp=same ra=same", "0x8 cfa=sp+512 fp=cfa-520 ra=cfa-512", "0x28 none"},
			{"0x0 cfa=sp+16 fp=same ra=same", "0x4 cfa=sp+48 fp=cfa-56 ra=cfa-48", "0x28 none"},
			{"0x0 " + x30, "0x4 cfa=sp+16 fp=same ra=same", "0x28 none"},
			{"0x0 " + x30, "0x8 unsupported"},
		}},
	} {
		table, err := compileBytes(t, goProgram(test.machine, test.functions), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if table.Stats.Damaged > 0 {
			t.Errorf("got damage %v, want none", table.Stats.Damage)
		}
		got := map[uint64][]string{}
		table.Each(func(addr uint64, r Rule) bool {
			addr -= codeAddr
			if i := addr / 256; addr+0x1000 > addr && i < uint64(len(test.functions)) {
				got[i] = append(got[i], fmt.Sprintf("%#x %v", addr%256, r))
			}
			return true
		})
		for i, f := range test.functions {
			// A row that repeats the one before the function is left out.
			if want, rows := test.want[i], got[uint64(i)]; !slices.Equal(rows, want) && !slices.Equal(rows, want[1:]) {
				t.Errorf("%v, %s: %s", test.machine, f.name, cmp.Diff(want, rows))
			}
			if r := table.Lookup(codeAddr + 256*uint64(i)).String(); !strings.HasSuffix(test.want[i][0], " "+r) {
				t.Errorf("%v, %s: got rule %s at the entry, want %s", test.machine, f.name, r, test.want[i][0])
			}
		}
	}
}

// TestWalkGo walks stacks that continue on another stack.
func TestWalkGo(t *testing.T) {
	table, err := compileBytes(t, goProgram(elf.EM_X86_64, goX86), Options{})
	if err != nil {
		t.Fatal(err)
	}
	call := func(name string, at uint64) uint64 {
		return codeAddr + at + 256*uint64(slices.IndexFunc(goX86, func(f goFunction) bool { return f.name == name }))
	}
	leaf, framed, systemstack := call("main.leaf", 8), call("main.framed", 16), call("runtime.systemstack", 16)
	morestack, goexit := call("runtime.morestack", 24), call("runtime.goexit", 1)
	const own, sp, tp, g0, m, g = 0x9000, 0x5000, 0x100000, 0x20000, 0x30000, 0x40000
	goroutine := func(change memory) memory {
		all := memory{
			own: morestack, tp - 8: g0, g0 + goM: m, m + 184: g, g + goM: m,
			g + goSched: sp, g + goSched + 8: framed, g + 96: 0,
			sp + 56: 0, sp + 64: goexit,
		}
		for at, v := range change {
			all[at] = v
		}
		return all
	}
	for _, test := range []struct {
		name   string
		fp, tp uint64
		memory memory
		want   string
	}{
		{"the caller of a function without a frame", 0, 0, memory{own: framed, own + 8 + 56: 0, own + 8 + 64: goexit},
			fmt.Sprintf("[%#x <-%#x <-%#x] complete", leaf, framed, goexit)},
		{"to another stack below", sp + 16, 0, memory{own: systemstack, sp + 16: 7, sp + 24: framed, sp + 32 + 56: 0, sp + 32 + 64: goexit},
			fmt.Sprintf("[%#x <-%#x <-%#x <-%#x] complete", leaf, systemstack, framed, goexit)},
		{"no other stack", 0, 0, memory{own: systemstack}, fmt.Sprintf("[%#x <-%#x] complete", leaf, systemstack)},
		{"another stack that is not there", sp, 0, memory{own: systemstack}, fmt.Sprintf("[%#x <-%#x] unreadable stack", leaf, systemstack)},
		{"goroutine", 0, tp, goroutine(nil), fmt.Sprintf("[%#x <-%#x <-%#x <-%#x] complete", leaf, morestack, framed, goexit)},
		{"no thread pointer", 0, 0, goroutine(nil), fmt.Sprintf("[%#x <-%#x] unreadable stack", leaf, morestack)},
		{"no goroutine", 0, tp, goroutine(memory{m + 184: 0}), fmt.Sprintf("[%#x <-%#x] complete", leaf, morestack)},
		{"other structures", 0, tp, goroutine(memory{g + goM: 7}), fmt.Sprintf("[%#x <-%#x] unsupported unwind rule", leaf, morestack)},
		{"running goroutine", 0, tp, goroutine(memory{g + goSched: 0}), fmt.Sprintf("[%#x <-%#x] unsupported unwind rule", leaf, morestack)},
		{"no memory", 0, tp, memory{own: morestack}, fmt.Sprintf("[%#x <-%#x] unreadable stack", leaf, morestack)},
	} {
		w := Walker{
			Machine: elf.EM_X86_64,
			Find:    func(uint64) (Code, uint64, bool) { return Code{Table: table}, 0, true },
			Read:    test.memory.read,
		}
		regs := Registers{PC: leaf, TP: test.tp}
		regs.R[amd64SP], regs.R[amd64FP] = own, test.fp
		frames, end := w.Walk(regs, nil, 10)
		if got := fmt.Sprint(frames, " ", end); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

// TestGoBounds checks that functions that share large tables cannot cost any time.
func TestGoBounds(t *testing.T) {
	functions := make([]goFunction, 200)
	for i := range functions {
		functions[i] = goFunction{"f", 0, nil, nil}
		for at := int64(1); at < 250; at++ {
			functions[i].sizes = append(functions[i].sizes, at%2*8, at)
		}
	}
	table, err := compileBytes(t, goProgram(elf.EM_X86_64, functions), Options{MaxRows: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) > 1100 || table.Stats.Damaged != 1 {
		t.Errorf("got %d rows and damage %v, want at most 1100 and one", len(table.Rows), table.Stats.Damage)
	}
}

// FuzzGo compiles Go programs with arbitrary function tables and code.
func FuzzGo(f *testing.F) {
	for m, functions := range map[elf.Machine][]goFunction{elf.EM_X86_64: goX86, elf.EM_AARCH64: goARM64} {
		for i := range functions {
			f.Add(goTable(m, functions[i:]), functions[i].code, m == elf.EM_AARCH64)
		}
	}
	f.Fuzz(func(t *testing.T, functions, code []byte, isARM bool) {
		m := elf.EM_X86_64
		if isARM {
			m = elf.EM_AARCH64
		}
		const rows = 1 << 12
		table, err := compileBytes(t, madeUp(m, code, goBuildinfo, elftest.Section{Name: ".gopclntab", Addr: 0x600000, Content: functions}), Options{MaxRows: rows})
		if err != nil {
			return
		}
		checkTable(t, table)
		if len(table.Rows) > 4*rows {
			t.Fatalf("got %d rows, want at most %d", len(table.Rows), 4*rows)
		}
		for addr := uint64(codeAddr - 1); addr < codeAddr+4<<10; addr += 7 {
			_ = table.Lookup(addr).String()
		}
	})
}
