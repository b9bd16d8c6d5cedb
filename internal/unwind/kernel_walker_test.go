package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/bpf"
	"fulgur/internal/testenv"
)

// Commands of testdata/walk.c.
const (
	commandRules = iota + 1
	commandPage
	commandMappings
	commandMemory
	commandWalk
)

const (
	pageWords       = 1 << 14
	memoryPage      = 4096
	kernelMaxDepth  = 127
	noTable         = 1<<32 - 1
	layoutCountBits = 24
	layoutSaltBits  = 40
)

// kernelWalker is the kernel's walker, compiled for user space.
type kernelWalker struct {
	in       *bytes.Buffer
	pipe     io.WriteCloser
	out      io.ReadCloser
	stderr   bytes.Buffer
	cmd      *exec.Cmd
	rules    []Rule
	words    []uint32
	sent     int // words that it has
	tables   map[*Table]placed
	mappings int
	salt     uint64
}

// placed is where a table is in the space of words.
type placed struct{ blocks, rows uint32 }

// newKernelWalker builds the walker with the compiler's checks for errors and
// starts it.
func newKernelWalker(t testing.TB, machine elf.Machine) *kernelWalker {
	t.Helper()
	arch := "x86"
	if machine == elf.EM_AARCH64 {
		arch = "arm64"
	}
	program := filepath.Join(t.TempDir(), "walk")
	build := exec.Command(testenv.Tool(t, "clang-19"), "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D__TARGET_ARCH_"+arch,
		"-o", program, filepath.Join("testdata", "walk.c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	k := &kernelWalker{
		cmd: exec.Command(program), in: &bytes.Buffer{}, tables: map[*Table]placed{},
		rules: make([]Rule, bpf.UnwindUnwindRuleIndexUNWIND_RULE_FIRST),
	}
	chain := Rule{
		Kind: Kind(bpf.UnwindUnwindKindUNWIND_CHAIN), CFA: 16,
		FPSlot: SlotCFA, FP: -16, RASlot: SlotCFA, RA: -8,
	}
	k.rules[bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN] = chain
	chain.Arg = 1
	k.rules[bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN_GO] = chain
	k.cmd.Stderr = &k.stderr
	var err error
	if k.pipe, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if k.out, err = k.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = k.pipe.Close()
		if err := k.cmd.Wait(); err != nil {
			t.Errorf("the kernel's walker: %v\n%s", err, &k.stderr)
		}
	})
	return k
}

// command sends a command with what it is about; count is of what is sent, or
// which it is.
func (k *kernelWalker) command(command, count uint32, what ...any) {
	for _, v := range append([]any{command, count}, what...) {
		if err := binary.Write(k.in, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
}

// add brings a table into the space of words.
func (k *kernelWalker) add(t *Table) placed {
	if p, ok := k.tables[t]; ok {
		return p
	}
	base := uint32(len(k.rules)) - 1 // rule 0 is for all
	k.rules = append(k.rules, t.Rules[1:]...)
	p := placed{blocks: uint32(len(k.words))}
	k.words = append(k.words, t.Blocks...)
	p.rows = uint32(len(k.words))
	for _, r := range t.Rows {
		rule := r.Rule()
		if rule > 0 {
			rule += base
		}
		k.words = append(k.words, uint32(newRow(uint64(r.Low()), rule)))
	}
	k.tables[t] = p
	return p
}

// mapped is where a file is mapped.
type mapped struct {
	start, end, offset uint64
	table              *Table // or nil
}

// layOut tells the walker the mappings of a process, sorted, and returns the
// layout.
func (k *kernelWalker) layOut(list []mapped) uint64 {
	var mappings []bpf.UnwindUnwindMapping
	bare := func(start, end uint64) {
		if start < end {
			mappings = append(mappings, bpf.UnwindUnwindMapping{
				Start: start, End: end, Rows: noTable,
			})
		}
	}
	for _, m := range list {
		at := m.start
		if m.table != nil {
			p := k.add(m.table)
			for _, s := range m.table.Segments {
				bias := m.start - m.offset + s.Offset - s.Addr
				start, end := max(s.Addr+bias, at), min(s.Addr+s.Size+bias, m.end)
				if start >= end || s.Offset+s.Size <= m.offset {
					continue
				}
				bare(at, start)
				mappings = append(mappings, bpf.UnwindUnwindMapping{
					Start: start, End: end, Bias: bias,
					Blocks: p.blocks + s.FirstBlock - uint32(s.Addr>>BlockShift), Rows: p.rows,
				})
				at = end
			}
		}
		bare(at, m.end)
	}
	k.sendTables()
	k.command(commandMappings, uint32(len(mappings)), mappings)
	k.salt++
	return uint64(len(mappings))<<layoutCountBits | k.salt<<layoutSaltBits
}

// sendTables sends what is new of rules and words.
func (k *kernelWalker) sendTables() {
	if k.sent == len(k.words) {
		return
	}
	k.command(commandRules, uint32(len(k.rules)), k.rules)
	for page := k.sent / pageWords; page*pageWords < len(k.words); page++ {
		words := make([]uint32, pageWords)
		copy(words, k.words[page*pageWords:])
		k.command(commandPage, uint32(page), words)
	}
	k.sent = len(k.words)
}

// setMemory gives the walker pages of memory.
func (k *kernelWalker) setMemory(pages map[uint64][]byte) {
	k.command(commandMemory, uint32(len(pages)))
	for at, b := range pages {
		_ = binary.Write(k.in, binary.LittleEndian, at)
		k.in.Write(b)
	}
}

// walk returns the stack of a thread in a layout.
func (k *kernelWalker) walk(t testing.TB, a *arch, regs Registers, layout, pcMask uint64, mode bpf.OnCPUUnwindMode, limit int) ([]Frame, bpf.OnCPUStackEnd) {
	t.Helper()
	if pcMask == 0 {
		pcMask = frameExact - 1
	}
	k.command(commandWalk, 1, regs.R, regs.PC, regs.R[a.sp], regs.R[a.fp], layout, pcMask, mode, uint32(limit))
	if _, err := k.pipe.Write(k.in.Bytes()); err != nil {
		t.Fatalf("the kernel's walker: %v\n%s", err, &k.stderr)
	}
	k.in.Reset()
	var head struct{ End, N uint32 }
	if err := binary.Read(k.out, binary.LittleEndian, &head); err != nil {
		t.Fatalf("the kernel's walker: %v\n%s", err, &k.stderr)
	}
	pcs := make([]uint64, head.N)
	if err := binary.Read(k.out, binary.LittleEndian, pcs); err != nil {
		t.Fatalf("the kernel's walker: %v\n%s", err, &k.stderr)
	}
	frames := make([]Frame, len(pcs))
	for i, pc := range pcs {
		frames[i] = Frame{PC: pc &^ frameExact, Exact: i == 0 || pc&frameExact != 0}
	}
	return frames, bpf.OnCPUStackEnd(head.End)
}

// check walks a stack and compares it with what [Walker] found by reading the
// given memory, as far as the kernel's goes.
func (k *kernelWalker) check(t *testing.T, a *arch, regs Registers, layout uint64, memory map[uint64][]byte, want []Frame, wantEnd End) {
	t.Helper()
	if len(want) > kernelMaxDepth {
		want, wantEnd = want[:kernelMaxDepth], EndDepth
	}
	k.setMemory(memory)
	got, end := k.walk(t, a, regs, layout, 0, bpf.OnCPUUnwindModeUNWIND_BY_BOTH, kernelMaxDepth)
	if !slices.Equal(got, want) || end != kernelEnds[wantEnd] {
		t.Errorf("the kernel's walker:\n got %v (end %d)\nwant %v (%v)", got, end, want, wantEnd)
	}
}

// frameExact is FRAME_EXACT of bpf/record.h.
const frameExact = 1 << 63

// kernelEnds are the kernel's names of ends.
var kernelEnds = map[End]bpf.OnCPUStackEnd{
	EndComplete:    bpf.OnCPUStackEndEND_COMPLETE,
	EndDepth:       bpf.OnCPUStackEndEND_DEPTH,
	EndNoFile:      bpf.OnCPUStackEndEND_NO_MAPPING,
	EndNoTable:     bpf.OnCPUStackEndEND_NO_TABLE,
	EndUnsupported: bpf.OnCPUStackEndEND_UNSUPPORTED,
	EndRegister:    bpf.OnCPUStackEndEND_REGISTER,
	EndMemory:      bpf.OnCPUStackEndEND_FAULT,
	EndNotGrowing:  bpf.OnCPUStackEndEND_NOT_GROWING,
}

// recorder remembers the pages of memory that a walker reads.
type recorder struct {
	read  func(addr uint64, buf []byte) bool
	pages map[uint64][]byte
}

func (r *recorder) Read(addr uint64, buf []byte) bool {
	for at := addr &^ (memoryPage - 1); at < addr+uint64(len(buf)); at += memoryPage {
		if _, ok := r.pages[at]; ok {
			continue
		}
		page := make([]byte, memoryPage)
		if !r.read(at, page) {
			return false
		}
		r.pages[at] = page
	}
	for i := range buf {
		at := addr + uint64(i)
		buf[i] = r.pages[at&^(memoryPage-1)][at%memoryPage]
	}
	return true
}

// choices are bytes that a fuzzer chose, then zeros.
type choices struct{ b []byte }

func (s *choices) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

// fuzzRule returns any rule that a table may hold.
func fuzzRule(s *choices, a *arch) Rule {
	off := func(b byte) int32 { return int32(int8(b)) * 8 }
	r := Rule{Kind: Kind(s.byte() % byte(KindSignal+1))}
	if r.Kind < KindSP {
		return r
	}
	r.CFA = off(s.byte())
	if r.Kind == KindSignal {
		return r
	}
	if r.Kind == KindSP || r.Kind == KindFP {
		r.CFA += int32(s.byte() & 1) // what is misaligned
	}
	switch r.Kind {
	case KindRegister:
		r.Arg = s.byte() % uint8(a.ra)
	case KindPLT:
		r.Arg = s.byte() % 16
	case KindDerefSP, KindDerefFP:
		r.Arg = s.byte()
	}
	slot := func(same bool) (Slot, int32) {
		k := Slot(s.byte()) % (SlotUnknown + 1)
		switch k {
		case SlotCFA, SlotSP, SlotFP:
			return k, off(s.byte())
		case SlotRegister:
			return k, int32(uint64(s.byte()) % a.ra)
		case SlotSame:
			if !same {
				return SlotCFA, -8
			}
		}
		return k, 0
	}
	r.FPSlot, r.FP = slot(true)
	r.RASlot, r.RA = slot(a.link)
	return r
}

const (
	fuzzStack     = 0x7ffe00000000
	fuzzStackSize = 4 * memoryPage
	fuzzBias      = 0x10000000
)

// fuzzTable returns a table of one segment with rules at random places.
func fuzzTable(s *choices, a *arch) *Table {
	t := &Table{Rules: []Rule{{}}}
	n := int(s.byte())%32 + 1
	for range n {
		t.Rules = append(t.Rules, fuzzRule(s, a))
	}
	seg := Segment{Addr: codeAddr + uint64(s.byte())*16, Size: 4000}
	t.Segments = []Segment{seg}
	rows := []uint64{seg.Addr}
	for range int(s.byte()) {
		rows = append(rows, seg.Addr+uint64(s.byte())*16)
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	blocks := (seg.Addr+seg.Size-1)>>BlockShift - seg.Addr>>BlockShift + 1
	next := 0
	for b := range blocks {
		t.Blocks = append(t.Blocks, uint32(len(t.Rows)))
		for next < len(rows) && rows[next]>>BlockShift == seg.Addr>>BlockShift+b {
			t.Rows = append(t.Rows, newRow(rows[next]&(blockSize-1), uint32(s.byte())%uint32(len(t.Rules))))
			next++
		}
	}
	// The first row is at its block's start, as checkTable says.
	t.Rows[0] = newRow(0, t.Rows[0].Rule())
	t.Blocks = append(t.Blocks, uint32(len(t.Rows)))
	return t
}

// fuzzWord returns a word that is likely to be in a stack.
func fuzzWord(s *choices) uint64 {
	switch b := s.byte(); b % 8 {
	case 0:
		return uint64(b)
	case 1, 2, 3:
		return fuzzStack + (uint64(b)<<8+uint64(s.byte()))%(fuzzStackSize+64)&^7
	case 4:
		return fuzzStack + uint64(s.byte())
	default:
		return fuzzBias + codeAddr + uint64(b)<<4 + uint64(s.byte())
	}
}

// FuzzKernelWalker compares stacks that the two walkers find by any rules in any
// memory.
func FuzzKernelWalker(f *testing.F) {
	walkers := map[elf.Machine]*kernelWalker{}
	for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		walkers[m] = newKernelWalker(f, m)
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
		m := elf.EM_X86_64
		if isARM {
			m = elf.EM_AARCH64
		}
		k, a, s := walkers[m], archOf(m), &choices{b}
		table := fuzzTable(s, a)
		k.words, k.sent, k.tables = nil, 0, map[*Table]placed{}
		k.rules = k.rules[:bpf.UnwindUnwindRuleIndexUNWIND_RULE_FIRST]
		// The table begins anywhere, also so that a page of it ends within.
		k.words = make([]uint32, pageWords-int(s.byte()))
		seg := table.Segments[0]
		start := seg.Addr + fuzzBias
		layout := k.layOut([]mapped{{start: start, end: start + seg.Size, table: table}})

		pages := map[uint64][]byte{}
		mask := uint64(frameExact - 1)
		if isARM {
			mask = 1<<48 - 1
		}
		regs := Registers{PC: seg.Addr + fuzzBias + uint64(s.byte())*16}
		for i := range a.ra + 1 {
			regs.R[i] = fuzzWord(s)
		}
		regs.R[a.sp] = fuzzStack + uint64(s.byte())*8
		for at := uint64(fuzzStack); at < fuzzStack+fuzzStackSize; at += memoryPage {
			page := make([]byte, 0, memoryPage)
			for len(page) < memoryPage {
				page = binary.LittleEndian.AppendUint64(page, fuzzWord(s))
				if len(s.b) == 0 {
					s.b = b // again
				}
				if len(b) == 0 {
					page = make([]byte, memoryPage)
				}
			}
			pages[at] = page
		}
		k.setMemory(pages)
		w := Walker{
			Machine: m,
			PCMask:  mask,
			Find: func(addr uint64) (*Table, uint64, bool) {
				return table, fuzzBias, addr-fuzzBias-seg.Addr < seg.Size
			},
			Read: (&recorder{read: func(uint64, []byte) bool { return false }, pages: pages}).Read,
		}
		want, wantEnd := w.Walk(regs, nil, kernelMaxDepth)
		for range 2 { // with the cache cold and warm
			got, end := k.walk(t, a, regs, layout, mask, bpf.OnCPUUnwindModeUNWIND_BY_BOTH, kernelMaxDepth)
			if g, w := fmt.Sprint(got, end), fmt.Sprint(trim(want), kernelEnds[wantEnd]); g != w {
				t.Fatalf("the kernel's walker finds %s, want %s", g, w)
			}
		}
		_, _ = k.walk(t, a, regs, layout, mask, bpf.OnCPUUnwindModeUNWIND_BY_FRAME_POINTERS, kernelMaxDepth)
	})
}

// trim returns frames as the kernel's walker has them, the uppermost bit being
// taken.
func trim(frames []Frame) []Frame {
	for i := range frames {
		frames[i].PC &^= frameExact
	}
	return frames
}
