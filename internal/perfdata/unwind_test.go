package perfdata

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
)

// allRegisters is the mask of perf record on amd64: all but four segment registers.
const allRegisters = 0xff0fff

// userOf makes perf record --call-graph dwarf of the builder, with these registers. Each
// chain must be followed by user.
func (b *builder) userOf(registers uint64) {
	b.sampleOf(chainSampleType | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER)
	binary.NativeEndian.PutUint64(b.attr[offsetUserRegs:], registers)
}

// user adds the user state to the last sample. copied is the number of bytes of the stack
// that could be copied.
func (b *builder) user(abi uint64, registers, stack []uint64, copied uint64) {
	body := b.records[len(b.records)-1][headerSize:]
	misc := binary.NativeEndian.Uint16(b.records[len(b.records)-1][4:])
	body = append(bytes.Clone(body), words(abi)...)
	if abi != perfevent.ABINone {
		body = append(body, words(registers)...)
	}
	body = append(body, words(uint64(8*len(stack)))...)
	if len(stack) > 0 {
		body = append(append(body, words(stack)...), words(copied)...)
	}
	b.records[len(b.records)-1] = recordOf(unix.PERF_RECORD_SAMPLE, misc, body)
}

// amd64State returns the registers of allRegisters.
func amd64State(pc, sp, fp uint64) []uint64 {
	regs := make([]uint64, 20)
	regs[6], regs[7], regs[8] = fp, sp, pc
	return regs
}

// testTable returns a table for the code of a file from offset 0 to 0x5000, linked at
// 0x10000. Each of its pages has a rule.
func testTable() *unwind.Table {
	t := &unwind.Table{
		Segments: []unwind.Segment{{Addr: 0x10000, Size: 0x5000}},
		Rules: []unwind.Rule{
			{},
			{Kind: unwind.KindSP, CFA: 16, FPSlot: unwind.SlotCFA, FP: -16, RASlot: unwind.SlotCFA, RA: -8},
			{Kind: unwind.KindFP, CFA: 16, FPSlot: unwind.SlotCFA, FP: -16, RASlot: unwind.SlotCFA, RA: -8},
			{Kind: unwind.KindEnd},
			{Kind: unwind.KindSignal},
		},
	}
	for page := range uint32(5) {
		first := uint32(len(t.Rows))
		t.Rows = append(t.Rows, unwind.Row(0).WithRule(page))
		t.Blocks = append(t.Blocks, first, first+1, first+1, first+1)
	}
	t.Blocks = append(t.Blocks, uint32(len(t.Rows)))
	return t
}

// Addresses of code in the mapping of /bin/copied: of functions of 16 bytes of stack, with a
// frame pointer, of the outermost function, of a signal trampoline, and without a table.
const (
	mapped     = 0x400000
	plainCode  = mapped + 0x1100
	framedCode = mapped + 0x2100
	outermost  = mapped + 0x3100
	trampoline = mapped + 0x4100
	bareCode   = mapped + 0x0100
	stackAt    = 0x7ffd0000
)

// copyFile has samples with copied stacks.
func copyFile() *builder {
	b := newChainBuilder()
	b.userOf(allRegisters)
	b.exec(7, "sh")
	b.mmap2(7, mapped, 0x5000, 0, "/bin/copied")
	sample := func(mode uint16, regs, stack []uint64, chain ...uint64) {
		b.chain(7, 7, mode, chain...)
		b.user(perfevent.ABI64, regs, stack, uint64(8*len(stack)))
	}
	whole := []uint64{stackAt + 0x18, framedCode, 0, 0, outermost, 1, 2}
	sample(modeUser, amd64State(plainCode, stackAt, 0), whole, plainCode)
	sample(modeKernel, amd64State(plainCode, stackAt, 0), whole, contextKernel, kernelStart+0x10)
	// The kernel's user frames give way to the copy's.
	sample(modeKernel, amd64State(plainCode, stackAt, 0), whole, contextKernel, kernelStart+0x10, contextUser, mapped)
	sample(modeUser, amd64State(plainCode, stackAt, 0), whole[:3], plainCode)
	b.chain(7, 7, modeUser, plainCode)
	b.user(perfevent.ABI64, amd64State(plainCode, stackAt, 0), make([]uint64, 3), 8)
	sample(modeUser, amd64State(bareCode, stackAt, 0), whole, bareCode)
	sample(modeUser, amd64State(0x1234, stackAt, 0), whole, 0x1234)
	sample(modeUser, amd64State(framedCode, stackAt, stackAt-0x100), whole, framedCode)
	b.chain(7, 7, modeKernel, contextKernel, kernelStart+0x10)
	b.user(perfevent.ABINone, nil, nil, 0)
	b.chain(7, 7, modeUser, mapped) // a 32-bit program
	b.user(1, amd64State(plainCode, stackAt, 0), whole, 8)
	return b
}

// Copied stacks are unwound by the tables of the mapped files, and say why they end.
func TestUnwind(t *testing.T) {
	b := copyFile()
	asked := 0
	data := b.file(b.plain())
	c, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Code: func(m Mapped, machine elf.Machine) unwind.Code {
		if asked++; m.Path != "/bin/copied" || machine != machineOf("") {
			t.Errorf("got a request for %+v of %v", m, machine)
		}
		return unwind.Code{Table: testTable()}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if asked != 1 {
		t.Errorf("got %d requests for the file's table, want 1", asked)
	}
	if machineOf("") != elf.EM_X86_64 {
		return // the registers above are amd64's
	}
	checkStacks(t, c.Profile, []string{
		"1 3100< 2100< 1100 complete",
		"2 3100< 2100< 1100 ffffffff81000010 complete",
		"1 2100< 1100 end of stack copy",
		"1 1100 unreadable stack",
		"1 100 no unwind table",
		"1 1234 no code mapped",
		"1 2100 stack does not grow",
		"1 ffffffff81000010 no user stack",
		"1 0 no unwind table",
	})
}

// checkStacks compares the samples of p. Each is its number, the addresses from the root, "<" after a return address,
// and the end.
func checkStacks(t *testing.T, p *profile.Profile, want []string) {
	t.Helper()
	var got []string
	for _, s := range p.Samples {
		text := fmt.Sprint(s.Values[0])
		for _, id := range slices.Backward(p.AppendFrames(nil, s.Stack)) {
			f := p.Frames[id]
			text += fmt.Sprintf(" %x", f.Address)
			if f.Return {
				text += "<"
			}
		}
		got = append(got, text+" "+s.End.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}
}

// Addresses of generated code, of other memory that was once executable, and of code of a file without a table,
// in which functions keep frame pointers.
const (
	jitCode  = 0x500000
	replaced = 0x510000
	chained  = 0x520000
)

// generatedFile has samples with copied stacks of a program that generates code.
func generatedFile() *builder {
	b := newChainBuilder()
	b.userOf(allRegisters)
	pid := int32(8)
	for pid := range int32(9) {
		b.exec(pid, "sh")
		b.mmap2(pid, mapped, 0x5000, 0, "/bin/copied")
		b.mmap2(pid, chained, 0x1000, 0, "/bin/chained")
		b.mmap2(pid, jitCode, 0x10000, 0, "//anon")
		b.mmap2(pid, replaced, 0x10000, replaced, "[anon:code]")
		b.add(unix.PERF_RECORD_MMAP, unix.PERF_RECORD_MISC_MMAP_DATA, pid,
			append(words([2]int32{pid, pid}, [3]uint64{replaced, 0x10000, replaced}), padded("//anon")...))
	}
	sample := func(pc, fp uint64, copied int, stack ...uint64) {
		b.chain(pid, pid, modeUser, pc)
		stack = append(stack, make([]uint64, 8-len(stack))...)
		b.user(perfevent.ABI64, amd64State(pc, stackAt, fp), stack, uint64(8*copied))
	}
	// Generated code called by generated code, called by code with a table.
	sample(jitCode+0x10, stackAt+8, 8, 1, stackAt+24, jitCode+0x20, stackAt+40, framedCode, 0, outermost)
	sample(chained+0x10, stackAt, 8, stackAt+16, chained+0x20, stackAt+40, framedCode, 0, 0, outermost)
	// Code with a table, called by generated code.
	sample(plainCode, 0, 8, stackAt+24, jitCode+0x30, 0, 0, outermost)
	pid = 7 // whose stacks end early
	sample(jitCode+0x40, 0, 8)
	sample(jitCode+0x41, stackAt+8, 8, 0, 0, 0)
	sample(jitCode+0x42, stackAt-8, 8)
	sample(jitCode+0x43, stackAt+3, 8)
	sample(jitCode+0x44, 8, 8)
	sample(jitCode+0x45, stackAt+0x1000, 8)
	sample(jitCode+0x46, stackAt+56, 8)
	sample(jitCode+0x47, stackAt+0x1000, 7)
	sample(jitCode+0x48, stackAt+8<<20, 8)
	sample(jitCode+0x49, stackAt, 8, stackAt+16, replaced+0x10)
	sample(jitCode+0x4a, stackAt, 8, stackAt+16, 0x1234)
	sample(bareCode, stackAt, 8, stackAt+16, outermost)
	return b
}

// Walks follow frame pointers where code is known to keep them, and nowhere else.
func TestUnwindGenerated(t *testing.T) {
	if machineOf("") != elf.EM_X86_64 {
		return // the registers are amd64's
	}
	b := generatedFile()
	data := b.file(b.plain())
	c, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Code: func(m Mapped, _ elf.Machine) unwind.Code {
		switch m.Path {
		case "/bin/copied":
			return unwind.Code{Table: testTable()}
		case "/bin/chained":
			return unwind.Code{Fallback: unwind.Chain(unwind.ChainAny)}
		}
		t.Errorf("got a request for %+v", m)
		return unwind.Code{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	checkStacks(t, c.Profile, []string{
		"1 3100< 2100< 500020< 500010 complete",
		"1 3100< 2100< 20< 10 complete",
		"1 3100< 500030< 1100 complete",
		"1 500040 end of frame pointers",
		"1 500041 end of frame pointers",
		"1 500042 broken stack",
		"1 500043 broken stack",
		"1 500044 broken stack",
		"1 500045 end of stack copy",
		"1 500046 end of stack copy",
		"1 500047 broken stack",
		"1 500048 broken stack",
		"1 510010< 500049 no code mapped",
		"1 1234< 50004a no code mapped",
		"1 100 no unwind table",
	})
}

// If frame pointers lead nowhere in many stacks of generated code, others may lack callers.
func TestGeneratedOmits(t *testing.T) {
	if machineOf("") != elf.EM_X86_64 {
		return // the registers are amd64's
	}
	for _, whole := range []int{mostBroken - 1, mostBroken - 2} {
		b := newChainBuilder()
		b.userOf(allRegisters)
		for pid := range int32(2) {
			b.exec(7+pid, "sh")
			b.mmap2(7+pid, mapped, 0x5000, 0, "/bin/copied")
			b.mmap2(7+pid, jitCode, 0x10000, 0, "//anon")
		}
		sample := func(pid int32, pc, fp uint64) {
			b.chain(pid, pid, modeUser, pc)
			b.user(perfevent.ABI64, amd64State(pc, stackAt, fp), []uint64{0, outermost}, 16)
		}
		sample(7, jitCode, 1)
		sample(7, outermost, 0)
		sample(8, jitCode, stackAt) // nothing is known of another process
		for range whole {
			sample(7, jitCode, stackAt)
		}
		data := b.file(b.plain())
		c, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Code: func(Mapped, elf.Machine) unwind.Code {
			return unwind.Code{Table: testTable()}
		}})
		if err != nil {
			t.Fatal(err)
		}
		end := stackend.Complete
		if whole < mostBroken-1 {
			end = stackend.Omitted
		}
		checkStacks(t, c.Profile, []string{
			"1 500000 broken stack",
			"1 3100 complete",
			"1 3100< 500000 complete",
			fmt.Sprintf("%d 3100< 500000 %v", whole, end),
		})
	}
}

// testLayout maps a file with testTable at mapped.
func testLayout() bolt.Layout {
	region, _ := bolt.NewMapped("/bin/copied", "").Region(mapped, 0x5000, 0)
	return bolt.Layout{}.With(region)
}

// On arm64, the link register has the caller of a function that has no frame, and addresses
// may be signed.
func TestUnwindARM64(t *testing.T) {
	table := testTable()
	table.Rules[1] = unwind.Rule{Kind: unwind.KindSP, CFA: 0} // a leaf
	u := newUnwinder("aarch64", func(Mapped, elf.Machine) unwind.Code { return unwind.Code{Table: table} })
	regs := make([]uint64, 33)
	regs[29], regs[30], regs[31], regs[32] = stackAt, 0x12<<48|framedCode, stackAt, plainCode
	state := perfevent.UserState{ABI: perfevent.ABI64, Mask: 1<<33 - 1, Regs: words(regs), Stack: words([]uint64{0, 0x34<<48 | outermost})}
	frames, end := u.walk(testLayout(), state)
	want := []unwind.Frame{{PC: plainCode, Exact: true}, {PC: framedCode}, {PC: outermost}}
	if diff := cmp.Diff(want, frames); diff != "" || end != stackend.Complete {
		t.Errorf("got end %v, want %v; frames (-want +got):\n%s", end, stackend.Complete, diff)
	}
	state.Mask &^= 1 << 31
	if frames, end := u.walk(testLayout(), state); len(frames) > 0 || end != stackend.NoTable {
		t.Errorf("got %d frames (%v) without a stack pointer, want none", len(frames), end)
	}
}

// FuzzUnwind compares the walks of a stack and of a shorter copy of it: the frames of the
// shorter one are a prefix, and a walk takes no more steps than the copy has words.
func FuzzUnwind(f *testing.F) {
	f.Add(words([]uint64{stackAt + 0x18, framedCode, 0, 0, outermost}), uint64(plainCode), uint64(0), uint16(24), false)
	f.Add(words(make([]uint64, 64)), uint64(trampoline), uint64(stackAt), uint16(100), true)
	loop := make([]uint64, 40)
	loop[20], loop[21] = stackAt, trampoline
	f.Add(words(loop), uint64(trampoline), uint64(stackAt), uint16(200), false)
	layout := testLayout()
	f.Fuzz(func(t *testing.T, stack []byte, pc, fp uint64, n uint16, arm bool) {
		arch, mask, regs := "x86_64", uint64(allRegisters), amd64State(pc, stackAt, fp)
		if arm {
			arch, mask, regs = "aarch64", 1<<33-1, make([]uint64, 33)
			regs[29], regs[30], regs[31], regs[32] = fp, pc, stackAt, pc
		}
		walk := func(stack []byte) ([]unwind.Frame, stackend.End) {
			u := newUnwinder(arch, func(Mapped, elf.Machine) unwind.Code {
				return unwind.Code{Table: testTable(), Fallback: unwind.Chain(unwind.ChainAny)}
			})
			frames, end := u.walk(layout, perfevent.UserState{ABI: perfevent.ABI64, Mask: mask, Regs: words(regs), Stack: stack, Full: true})
			if len(frames) == 0 || len(frames) > 2+len(stack)/8 || frames[0] != (unwind.Frame{PC: pc, Exact: true}) {
				t.Fatalf("got %d frames %v from %d bytes at %#x", len(frames), frames, len(stack), pc)
			}
			if end == stackend.None || end == stackend.Lost {
				t.Fatalf("got end %v", end)
			}
			return frames, end
		}
		all, end := walk(stack)
		part, _ := walk(stack[:min(int(n), len(stack))])
		if len(part) > len(all) || !slices.Equal(part, all[:len(part)]) {
			t.Fatalf("got %v from a part of the stack, want a prefix of %v (%v)", part, all, end)
		}
	})
}
