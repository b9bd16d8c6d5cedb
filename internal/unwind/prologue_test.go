package unwind

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
)

// codeAgreement counts instructions by how their rule from the code compares with call frame information.
type codeAgreement struct {
	described          int // bytes with a rule in call frame information
	equal, undecided   int // bytes
	different, unclear int // instructions
	examples, missing  []string
	steps, sure, maybe int
}

// compareCode analyzes the code of a file as if it had no call frame information, and compares the results
// with it.
func compareCode(t testing.TB, path string) (a codeAgreement) {
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := Compile(f, Options{})
	if err != nil {
		return a
	}
	bare := &builder{file: f, arch: archOf(f.Machine()), code: newCodeRanges(f)}
	c := newCodeRules(bare)
	described := &builder{file: f, arch: bare.arch, code: bare.code, workers: 1, maxRows: DefaultMaxRows}
	describe(t, described)
	for _, s := range described.spans {
		a.described += int(s.end - s.start)
	}
	covered := func(addr uint64) bool {
		for lo, hi := 0, len(described.spans); lo < hi; {
			m := (lo + hi) / 2
			switch s := &described.spans[m]; {
			case addr < s.start:
				hi = m
			case addr >= s.end:
				lo = m + 1
			default:
				return true
			}
		}
		return false
	}
	var found []comparedRule
	c.check = func(addr uint64, frame *codeFrame) {
		if !covered(addr) {
			return
		}
		want, got := table.Lookup(addr), frame.rule()
		in, _ := instruction.DecodeX86(c.reader.at(addr), addr)
		if got == (Rule{}) || want.Kind == KindUnsupported || want.Kind == KindEnd || want.Kind == KindSignal || want.Kind == KindPLT {
			return
		}
		found = append(found, comparedRule{addr, in.Size, got, want, frame.agrees(want, got)})
	}
	c.addSymbols(f)
	if inner, err := f.Embedded(); err == nil && inner != nil {
		c.addSymbols(inner)
	}
	c.addPointers()
	c.addMaybe(f.Entry())
	c.run()
	c.finish()
	a.steps, a.sure, a.maybe = c.steps, len(c.sure), len(c.maybe)
	made := bare.table()
	var known, unproven int
	for _, s := range described.spans {
		hit := false
		for at := s.start; at < s.end; at++ {
			if c.known[at] {
				hit = true
			}
		}
		if !hit {
			unproven += int(s.end - s.start)
			if len(a.missing) < 12 {
				a.missing = append(a.missing, fmt.Sprintf("%#x+%d sure %v", s.start, s.end-s.start, c.sure[s.start]))
			}
		} else {
			known += int(s.end - s.start)
		}
	}
	a.missing = append(a.missing, fmt.Sprintf("functions with something %d, with nothing %d", known, unproven))
	seen, shown := map[uint64]bool{}, map[uint64]bool{}
	slices.SortFunc(found, func(a, b comparedRule) int { return cmp.Compare(a.addr, b.addr) })
	for _, f := range found {
		if seen[f.addr] || made.Lookup(f.addr) != f.got {
			continue // functions that share code disagree
		}
		seen[f.addr] = true
		switch f.how {
		case "equal":
			a.equal += f.size
			continue
		case "unclear":
			a.unclear++
		default:
			a.different++
		}
		i, _ := slices.BinarySearchFunc(described.spans, f.addr+1, func(s span, addr uint64) int { return cmp.Compare(s.start, addr) })
		start := described.spans[i-1].start
		if len(a.examples) < 10 && !shown[start] {
			shown[start] = true
			a.examples = append(a.examples, fmt.Sprintf("%#x (%#x) %s: got %v, want %v", f.addr, start, f.how, f.got, f.want))
		}
	}
	return a
}

// comparedRule is a rule from code.
type comparedRule struct {
	addr      uint64
	size      int
	got, want Rule
	how       string // how they compare
}

func describe(t testing.TB, b *builder) {
	eh, err := callframe.OpenEH(b.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.add(eh); err != nil {
		t.Fatal(err)
	}
}

// agrees compares the rule that call frame information has for a frame with what is known of it.
func (f *codeFrame) agrees(want, got Rule) string {
	sp, fp := f.regs[x86SP], f.regs[x86FP]
	add := func(v value, n int64) value {
		if v.kind != valueAddress {
			return value{}
		}
		v.off += n
		return v
	}
	var cfa value
	switch want.Kind {
	case KindSP:
		cfa = add(sp, int64(want.CFA))
	case KindFP:
		cfa = add(fp, int64(want.CFA))
	case KindRegister:
		for i, n := range numbersInDWARF {
			if n == want.Arg {
				cfa = add(f.regs[i], int64(want.CFA))
			}
		}
	case KindDerefSP:
		cfa = add(f.load(add(sp, int64(want.CFA))), int64(want.Arg))
	case KindDerefFP:
		cfa = add(f.load(add(fp, int64(want.CFA))), int64(want.Arg))
	default:
		return "kind"
	}
	switch {
	case cfa.kind == valueUnknown || cfa.base != 0:
		return "unclear"
	case cfa.off != 0:
		return "cfa"
	}
	in := func(s Slot, off int32) (v value) {
		switch s {
		case SlotSame:
			v = fp
		case SlotCFA:
			v = f.at(0, int64(off))
		case SlotSP:
			v = f.load(add(sp, int64(off)))
		case SlotFP:
			v = f.load(add(fp, int64(off)))
		case SlotRegister:
			for i, n := range numbersInDWARF {
				if int32(n) == off {
					v = f.regs[i]
				}
			}
		}
		return v
	}
	if in(want.RASlot, want.RA) != (value{kind: valueCaller, reg: codeRA}) {
		return "ra"
	}
	if in(want.FPSlot, want.FP) != (value{kind: valueCaller, reg: x86FP}) && got.FPSlot != SlotUnknown {
		return "fp"
	}
	return "equal"
}

// TestCodeAgainstTables compares rules from code with the call frame information of the same code, of
// libraries of this machine. FULGUR_UNWIND_FILES names others.
func TestCodeAgainstTables(t *testing.T) {
	paths := strings.Fields(os.Getenv("FULGUR_UNWIND_FILES"))
	if paths == nil {
		paths, _ = filepath.Glob("/usr/lib/x86_64-linux-gnu/libc.so.6")
	}
	for _, path := range paths {
		a := compareCode(t, path)
		t.Logf("%s: %v steps, sure %d maybe %d; %d bytes described, %d equal (%.1f %%), %d different, %d unclear", filepath.Base(path), a.steps, a.sure, a.maybe, a.described, a.equal,
			100*float64(a.equal)/float64(max(a.described, 1)), a.different, a.unclear)
		if os.Getenv("MISSING") != "" {
			a.examples = append(a.examples, a.missing...)
		}
		for _, e := range a.examples {
			t.Log("   ", e)
		}
	}
}
