package unwind

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strings"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// IsGo reports whether f is a program or library with code from the Go compiler.
func IsGo(f *elffile.File) bool {
	return f.Section(".go.buildinfo") != nil || f.Section(".note.go.buildid") != nil
}

// goRows makes the rows of Go's functions from Go's function table, which has the distance of the
// stack pointer from its value at the function's entry (pcsp), also for assembly. The table does not
// say where the frame pointer is saved: Go's compiler and assembler save it just below the return
// address (amd64) or just below the frame (arm64). Assembly that makes its frame itself may save it
// elsewhere, or not at all, so its code is read.
//
// Functions that switch to another stack and back, such as systemstack, find their own frame again by
// the frame pointer. This needs a frame. The runtime's others, such as gogo, get no rows.
type goRows struct {
	*builder
	made   *synthetic // the last chunk
	chunks []*chunk
	// offs and rules are the rows of the current function.
	offs  []uint32
	rules []Rule
}

// addGo adds the functions of Go's function table for code that has no rows yet. It reports whether
// there are any.
func (b *builder) addGo() bool {
	if !IsGo(b.file) {
		return false
	}
	g := goRows{builder: b}
	g.begin(newRuleSet())
	damaged := func(err error) {
		b.stats.Damaged++
		b.stats.Damage = cmp.Or(b.stats.Damage, err)
	}
	if err := symbolize.GoStacks(b.file, b.maxRows, damaged, func(fn *symbolize.GoStack) bool {
		if len(g.made.chunk.rows) > goChunk {
			g.begin(g.made.chunk.rules)
		}
		g.function(fn)
		return true
	}); err != nil {
		damaged(err)
	}
	functions := 0
	for _, c := range g.chunks {
		functions += len(c.spans)
	}
	b.stats.Functions += functions
	b.spans = fill(b.spans, layer(g.chunks))
	return functions > 0
}

// goChunk is the number of rows in a chunk: appending to one chunk would copy its rows many times.
const goChunk = 16 << 10

// begin begins a chunk.
func (g *goRows) begin(rules *ruleSet) {
	g.made = &synthetic{chunk{rules: rules, rows: make([]localRow, 0, goChunk+goChunk/16), spans: make([]span, 0, goChunk/4)}}
	g.chunks = append(g.chunks, &g.made.chunk)
}

// function adds the rows of a function.
func (g *goRows) function(fn *symbolize.GoStack) {
	limit, ok := g.code.end(fn.Start)
	if !ok || fn.Start == 0 || len(fn.Sizes) == 0 {
		return
	}
	name := string(fn.Name)
	outermost := fn.Outermost && name != "runtime.sigtramp" || // the kernel calls this one
		strings.HasPrefix(name, "_rt0_") && !strings.HasSuffix(name, "_lib")
	end := min(fn.End, limit)
	switch {
	case outermost:
		g.made.add(fn.Start, end, []uint32{0}, Rule{Kind: KindEnd})
	case strings.HasPrefix(name, "runtime.sigreturn") && g.has(fn.Start, g.arch.sigreturn):
		// As in addSigreturn, the lookup of a return address to its first byte uses the byte before.
		first := fn.Start - 1
		if _, ok := g.code.end(first); !ok {
			first = fn.Start
		}
		g.made.add(first, end, []uint32{0}, Rule{Kind: KindSignal})
	case name == "runtime.morestack":
		g.morestack(fn.Start, end)
	default:
		f := goFrame{arch: g.arch, GoStack: fn}
		if fn.Assembly {
			f.readCode(g.bytes(fn.Start, end))
		} else if g.arch.link && (name == "runtime.sigpanic" || name == "runtime.debugCallV2") {
			f.injected = true
		}
		switch {
		case !fn.Switches || f.switches > 0:
			g.frames(&f, end)
		case strings.Contains(name, ".") && !strings.HasPrefix(name, "runtime."):
			// It keeps the stack pointer where only its author knows. Its caller's frame pointer would
			// hide the caller.
			g.made.add(fn.Start, end, []uint32{0, 1}, f.rule(0, fn.Sizes[0].Size), Rule{Kind: KindUnsupported})
		}
	}
}

// maxGoAssembly bounds the code of an assembly function that is searched for instructions, in bytes.
const maxGoAssembly = 512

// bytes returns the code from start to end, up to maxGoAssembly bytes, or nil if unreadable.
func (b *builder) bytes(start, end uint64) []byte {
	off, ok := b.file.Offset(start)
	if !ok {
		return nil
	}
	code := make([]byte, min(end-start, maxGoAssembly))
	n, _ := b.file.Reader().ReadAt(code, int64(off))
	return code[:n]
}

// goFrame describes where a function saves registers.
type goFrame struct {
	arch *arch
	*symbolize.GoStack
	// What follows is from the code of an assembly function, at offsets from its entry.

	// saves is the end of the instruction that saves registers, and saved the distance from the CFA
	// of the frame pointer, if they are not in the usual place. If saves is 0, they are.
	saves uint64
	saved int32
	// unsaved means that the function does not save registers.
	unsaved bool
	// switches is where the frame pointer begins to point to the frame; 0 if it never does. On arm64,
	// it points a word below the frame.
	switches uint64
	// injected means that a signal handler makes interrupted code call the function. On arm64, it
	// first pushes the link register.
	injected bool
}

// frame returns the start of the first instruction with a frame and its size, or 0.
func (f *goFrame) frame() (at uint64, size int32) {
	for i, s := range f.Sizes[1:] {
		if s.Size > 0 {
			return f.Sizes[i].End - f.Start, s.Size
		}
	}
	return 0, 0
}

// readCode searches the code of an assembly function for the instructions that make its frame.
func (f *goFrame) readCode(code []byte) {
	at, size := f.frame()
	if at == 0 || at >= uint64(len(code)) {
		f.unsaved = true
		return
	}
	if f.arch.link {
		f.readARM64(code, at, size)
	} else {
		f.readX86(code, at)
	}
}

func (f *goFrame) readX86(code []byte, at uint64) {
	rest := code[at:]
	store := bytes.Index(rest, []byte{0x48, 0x89, 0x6c, 0x24}) // mov %rbp, disp8(%rsp)
	switch {
	case code[at-1] == 0x55 && bytes.HasPrefix(rest, []byte{0x48, 0x89, 0xe5}): // push %rbp; mov %rsp, %rbp
		f.switches = at + 3
	case code[at-1] == 0x55: // push %rbp
	case store == 0 && bytes.HasPrefix(rest[min(5, len(rest)):], []byte{0x48, 0x8d, 0x6c, 0x24}): // up to Go 1.20
		f.switches = at + 10
	case bytes.HasPrefix(rest, []byte{0x48, 0x89, 0xac, 0x24}): // the same with a large frame
		f.switches = at + 16
	case store >= 0 && store+5 <= len(rest):
		f.saves = at + uint64(store) + 5
		f.saved = int32(int8(rest[store+4])) - f.sizeAt(f.saves) - 8
		f.unsaved = f.saved >= -8 // not in the frame
	default:
		f.unsaved = true
	}
}

// sizeAt returns the size at an offset.
func (f *goFrame) sizeAt(off uint64) int32 {
	for _, s := range f.Sizes {
		if s.End > f.Start+off {
			return s.Size
		}
	}
	return -1
}

func (f *goFrame) readARM64(code []byte, at uint64, size int32) {
	word := func(at uint64) uint32 {
		if at > uint64(len(code)) || len(code[at:]) < 4 {
			return 0 // also before the function's entry
		}
		return binary.LittleEndian.Uint32(code[at:])
	}
	usual := word(at-4)&0xffe00fff == 0xf8000ffe || // str x30, [sp, #-size]!
		word(at-8) == 0xa93ffa9d // stp x29, x30, [x20, #-8]; mov sp, x20
	if string(f.Name) == "runtime.asyncPreempt" { // str x30, [sp, #-size]; sub sp, #size
		f.injected, usual = true, true
	}
	if usual {
		for i := at; i < at+12; i += 4 {
			if word(i) == 0xd10023fd { // sub x29, sp, #8
				f.switches = i + 4
			}
		}
		return
	}
	f.unsaved = true
	for i := at; i+4 <= uint64(len(code)); i += 4 {
		if w := word(i); w&0xffc07fff == 0xa9007bfd { // stp x29, x30, [sp, #n]
			f.saves, f.unsaved = i+4, false
			f.saved = int32(w<<10)>>25*8 - size
			return
		}
	}
}

// frames adds the rows of a function with frames.
func (g *goRows) frames(f *goFrame, end uint64) {
	g.offs, g.rules = g.offs[:0], g.rules[:0]
	at := f.Start
	for _, s := range f.Sizes {
		until := min(s.End, end)
		for _, edge := range []uint64{f.Start + f.saves, f.Start + f.switches, until} {
			if edge > at && edge <= until {
				g.row(uint32(at-f.Start), f.rule(at-f.Start, s.Size))
				at = edge
			}
		}
	}
	if at > f.Start {
		g.made.add(f.Start, at, g.offs, g.rules...)
	}
}

// row adds a row, unless it repeats the last one.
func (g *goRows) row(off uint32, r Rule) {
	if n := len(g.rules); n == 0 || g.rules[n-1] != r {
		g.offs, g.rules = append(g.offs, off), append(g.rules, r)
	}
}

// maxGoFrame bounds the size of a frame, in bytes.
const maxGoFrame = 1 << 30

// rule returns the rule at an offset from the function's entry, where the frame has the given size.
func (f *goFrame) rule(off uint64, size int32) Rule {
	if size < 0 || size > maxGoFrame || size%8 != 0 {
		return Rule{}
	}
	if f.arch.link {
		return f.ruleARM64(off, size)
	}
	if f.Switches && size > 0 && off >= f.switches {
		return Rule{Kind: KindSwitch, CFA: 16, FPSlot: SlotFP, RASlot: SlotFP, RA: 8}
	}
	r := Rule{Kind: KindSP, CFA: size + 8, Arg: BaseLost, RASlot: SlotCFA, RA: -8}
	if size > 0 && !f.unsaved && off >= f.saves {
		r.FPSlot, r.FP = SlotCFA, cmp.Or(f.saved, -16)
	}
	return r
}

func (f *goFrame) ruleARM64(off uint64, size int32) Rule {
	pushed := int32(0)
	if f.injected {
		pushed = 16
	}
	switch {
	case size == 0:
		return Rule{Kind: KindSP, CFA: pushed}
	case f.Switches && off >= f.switches:
		return Rule{Kind: KindSwitch, CFA: size + 8, FPSlot: SlotFP, RASlot: SlotFP, RA: 8}
	case f.unsaved || off < f.saves:
		return Rule{Kind: KindSP, CFA: size} // the return address is in the link register
	case f.saves > 0:
		return Rule{Kind: KindSP, CFA: size, FPSlot: SlotCFA, FP: f.saved, RASlot: SlotCFA, RA: f.saved + 8}
	}
	size += pushed
	return Rule{Kind: KindSP, CFA: size, FPSlot: SlotCFA, FP: -size - 8, RASlot: SlotCFA, RA: -size}
}

// morestack adds the rows of the function that switches to the thread's own stack to make the
// goroutine's larger. From then on, only the runtime's data structures lead to the goroutine's.
func (g *goRows) morestack(start, end uint64) {
	code := g.bytes(start, end)
	at, before := afterMorestackX86(code), Rule{Kind: KindSP, CFA: 8, Arg: BaseLost, RASlot: SlotCFA, RA: -8}
	after := Rule{Kind: KindUnsupported}
	if g.arch.link {
		at, before = afterMorestackARM64(code), Rule{Kind: KindSP}
	} else if r, ok := goroutineRule(code); ok {
		after = r
	}
	if at == 0 {
		g.made.add(start, end, []uint32{0}, Rule{Kind: KindUnsupported})
		return
	}
	g.made.add(start, end, []uint32{0, at}, before, after)
}

// afterMorestackX86 returns the offset of the first instruction on the other stack, or 0.
func afterMorestackX86(code []byte) uint32 {
	for i := 0; i+4 <= len(code); i++ {
		// mov sched.sp(reg), %rsp
		if code[i] == 0x48 && code[i+1] == 0x8b && code[i+2]&0xf8 == 0x60 && code[i+2] != 0x64 && code[i+3] == goSched {
			return uint32(i + 4)
		}
	}
	return 0
}

func afterMorestackARM64(code []byte) uint32 {
	for i := 0; i+4 <= len(code); i += 4 {
		if binary.LittleEndian.Uint32(code[i:])&^(31<<5) == 0x9100001f { // mov sp, reg
			return uint32(i + 4)
		}
	}
	return 0
}

// goroutineRule returns the rule that finds the goroutine of a thread, from morestack's code. Two
// layouts of the runtime's structures are known, up to Go 1.24 and from then on; the offset of sched.bp
// in runtime.g tells them apart.
func goroutineRule(code []byte) (Rule, bool) {
	// It begins with mov %fs:offset, reg, or mov $offset, %rcx; mov %fs:(%rcx), reg.
	offset, at := code[min(3, len(code)):], 7
	if bytes.HasPrefix(code, []byte{0x64, 0x48, 0x8b}) {
		offset, at = code[min(5, len(code)):], 9
	} else if !bytes.HasPrefix(code, []byte{0x48, 0xc7, 0xc1}) {
		return Rule{}, false
	}
	if len(code) <= at {
		return Rule{}, false
	}
	r := Rule{Kind: KindGoroutine, CFA: int32(binary.LittleEndian.Uint32(offset))}
	for i := at; i+4 <= len(code); i++ {
		// mov %rbp, sched.bp(reg)
		if code[i] != 0x48 || code[i+1] != 0x89 || code[i+2]&^7 != 0x68 || code[i+2] == 0x6c {
			continue
		}
		switch code[i+3] {
		case 104:
			r.FP, r.RA = 192, 104
			return r, true
		case 96:
			r.FP, r.RA = 184, 96
			return r, true
		}
	}
	return r, false
}
