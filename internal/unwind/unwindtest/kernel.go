package unwindtest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
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
	// PageWords is the number of words of a page of tables.
	PageWords = 1 << bpf.UnwindUnwindShiftUNWIND_PAGE_SHIFT
	// PageSize is the size of a memory page, in bytes.
	PageSize = 4096

	noTable         = uint32(bpf.UnwindUnwindRowsUNWIND_NO_TABLE)
	layoutCountFrom = bpf.UnwindUnwindLayoutBitsUNWIND_LAYOUT_FIRST_BITS // bits below the number of mappings
	layoutSaltFrom  = layoutCountFrom + bpf.UnwindUnwindLayoutBitsUNWIND_LAYOUT_COUNT_BITS
)

// Kernel is the kernel's walker, compiled for user space.
type Kernel struct {
	cmd    *exec.Cmd
	in     bytes.Buffer // to be sent
	pipe   io.WriteCloser
	out    io.ReadCloser
	stderr bytes.Buffer
	fp, sp int // DWARF register numbers

	rules  []unwind.Rule
	words  []uint32
	sent   int // words already sent
	tables map[*unwind.Table]placed
	salt   uint64
}

// placed is where a table is in the space of words.
type placed struct{ blocks, rows uint32 }

// NewKernel builds the walker for a machine, with the compiler's sanitizers, and starts
// it.
func NewKernel(t testing.TB, machine elf.Machine) *Kernel {
	t.Helper()
	k := &Kernel{fp: 6, sp: 7}
	arch := "x86"
	if machine == elf.EM_AARCH64 {
		arch, k.fp, k.sp = "arm64", 29, 31
	}
	program := filepath.Join(t.TempDir(), "walk")
	build := exec.Command(testenv.Tool(t, "clang-19"), "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D__TARGET_ARCH_"+arch,
		"-o", program, source("walk.c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	k.Forget(0)
	k.rules[bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN] = unwind.Chain(unwind.ChainAny)
	k.rules[bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN_GO] = unwind.Chain(unwind.ChainStacks)
	k.rules[bpf.UnwindUnwindRuleIndexUNWIND_RULE_CHAIN_AT_END] = unwind.Chain(unwind.ChainAtEnd)
	k.cmd = exec.Command(program)
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

// Forget makes the walker forget all tables. The next one begins at the given word.
func (k *Kernel) Forget(word int) {
	if k.rules == nil {
		k.rules = make([]unwind.Rule, bpf.UnwindUnwindRuleIndexUNWIND_RULE_FIRST)
	}
	k.rules = k.rules[:bpf.UnwindUnwindRuleIndexUNWIND_RULE_FIRST]
	k.words, k.sent, k.tables = make([]uint32, word), 0, map[*unwind.Table]placed{}
}

// command sends a command with its arguments. count is the number of items sent, or the
// item's index.
func (k *Kernel) command(command, count uint32, what ...any) {
	for _, v := range append([]any{command, count}, what...) {
		if err := binary.Write(&k.in, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
}

// add places a table in the space of words.
func (k *Kernel) add(t *unwind.Table) placed {
	if p, ok := k.tables[t]; ok {
		return p
	}
	base := uint32(len(k.rules)) - 1 // rule 0 is shared
	k.rules = append(k.rules, t.Rules[1:]...)
	p := placed{blocks: uint32(len(k.words))}
	k.words = append(k.words, t.Blocks...)
	p.rows = uint32(len(k.words))
	for _, r := range t.Rows {
		rule := r.Rule()
		if int(rule) < len(t.Rules) && t.Rules[rule] == (unwind.Rule{}) { // a corrupt table has rules beyond
			rule = 0
		} else {
			rule += base
		}
		k.words = append(k.words, uint32(r.WithRule(rule)))
	}
	k.tables[t] = p
	return p
}

// Mapped is a mapping of a file, or of memory without one.
type Mapped struct {
	Start, End, Offset uint64
	unwind.Code
}

// LayOut passes the sorted mappings of a process to the walker, and returns the layout.
func (k *Kernel) LayOut(list []Mapped) uint64 {
	var mappings []bpf.UnwindUnwindMapping
	for _, m := range list {
		fallback := uint32(slices.Index(k.rules[:bpf.UnwindUnwindRuleIndexUNWIND_RULE_FIRST], m.Fallback))
		bare := func(start, end uint64) {
			if start < end {
				mappings = append(mappings, bpf.UnwindUnwindMapping{Start: start, End: end, Rows: noTable, Fallback: fallback})
			}
		}
		at := m.Start
		if m.Table != nil {
			p := k.add(m.Table)
			for _, s := range m.Table.Segments {
				bias := m.Start - m.Offset + s.Offset - s.Addr
				start, end := max(s.Addr+bias, at), min(s.Addr+s.Size+bias, m.End)
				if start >= end || s.Offset+s.Size <= m.Offset {
					continue
				}
				bare(at, start)
				mappings = append(mappings, bpf.UnwindUnwindMapping{
					Start: start, End: end, Bias: bias,
					Blocks: p.blocks + s.FirstBlock - uint32(s.Addr>>unwind.BlockShift), Rows: p.rows,
					Fallback: fallback,
				})
				at = end
			}
		}
		bare(at, m.End)
	}
	k.sendTables()
	k.command(commandMappings, uint32(len(mappings)), mappings)
	k.salt++
	return uint64(len(mappings))<<layoutCountFrom | k.salt<<layoutSaltFrom
}

// sendTables sends new rules and words.
func (k *Kernel) sendTables() {
	if k.sent == len(k.words) {
		return
	}
	k.command(commandRules, uint32(len(k.rules)), k.rules)
	for page := k.sent / PageWords; page*PageWords < len(k.words); page++ {
		words := make([]uint32, PageWords)
		copy(words, k.words[page*PageWords:])
		k.command(commandPage, uint32(page), words)
	}
	k.sent = len(k.words)
}

// SetMemory gives the walker pages of memory.
func (k *Kernel) SetMemory(pages map[uint64][]byte) {
	k.command(commandMemory, uint32(len(pages)))
	for at, b := range pages {
		_ = binary.Write(&k.in, binary.LittleEndian, at)
		k.in.Write(b)
	}
}

// Walk returns the stack of a thread with a layout. pcMask holds the bits that addresses
// can have.
func (k *Kernel) Walk(t testing.TB, regs unwind.Registers, layout, pcMask uint64, mode bpf.UnwindMode) ([]unwind.Frame, stackend.End) {
	t.Helper()
	k.command(commandWalk, 1, regs.R, regs.TP, regs.PC, regs.R[k.sp], regs.R[k.fp], layout, pcMask, mode, uint32(bpf.MaxDepth))
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
	frames := make([]unwind.Frame, len(pcs))
	for i, pc := range pcs {
		frames[i] = unwind.Frame{PC: pc &^ bpf.FrameExact, Exact: i == 0 || pc&bpf.FrameExact != 0}
	}
	return frames, stackend.End(head.End)
}

// Check walks a stack with the given memory and compares it with the result of
// [unwind.Walker], up to the kernel's limits.
func (k *Kernel) Check(t *testing.T, regs unwind.Registers, layout uint64, memory map[uint64][]byte, want []unwind.Frame, wantEnd stackend.End) {
	t.Helper()
	if len(want) > bpf.MaxDepth {
		want, wantEnd = want[:bpf.MaxDepth], stackend.Depth
	}
	k.SetMemory(memory)
	got, end := k.Walk(t, regs, layout, bpf.FrameExact-1, bpf.UnwindByBoth)
	got, want = AsRecorded(got), AsRecorded(want)
	if !slices.Equal(got, want) || end != wantEnd {
		t.Errorf("the kernel's walker:\n got %v (%v)\nwant %v (%v)", got, end, want, wantEnd)
	}
}

// AsRecorded returns frames as a record yields them. Records use the six highest bits of an
// address otherwise: if bit 62 is set, all six come back set; if not, bit 63 is lost. Some stacks
// end with such an address.
func AsRecorded(frames []unwind.Frame) []unwind.Frame {
	const native = bpf.FrameExact | 1<<bpf.FrameRuntimeShift | bpf.FrameKinds<<bpf.FrameKindShift
	recorded := slices.Clone(frames)
	for i := range recorded {
		pc := &recorded[i].PC
		if *pc&(1<<bpf.FrameRuntimeShift) != 0 {
			*pc |= native
		} else {
			*pc &^= bpf.FrameExact
		}
	}
	return recorded
}

// Recorder records the memory pages that a walker reads.
type Recorder struct {
	// From fills buf from the memory at addr, and reports whether it could.
	From func(addr uint64, buf []byte) bool
	// Pages holds the pages read, by address.
	Pages map[uint64][]byte
}

// Read fills buf from the memory at addr, and reports whether it could.
func (r *Recorder) Read(addr uint64, buf []byte) bool {
	for len(buf) > 0 {
		at := addr &^ (PageSize - 1)
		page, ok := r.Pages[at]
		if !ok {
			page = make([]byte, PageSize)
			if !r.From(at, page) {
				return false
			}
			r.Pages[at] = page
		}
		n := copy(buf, page[addr-at:])
		addr, buf = addr+uint64(n), buf[n:]
	}
	return true
}
