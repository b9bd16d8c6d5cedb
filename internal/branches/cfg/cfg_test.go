package cfg_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/branches/cfg"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// assemble returns the program and its symbols.
func assemble(t *testing.T) (*cfg.Program, map[string]uint64) {
	t.Helper()
	testenv.AnyKernel(t)
	out := filepath.Join(t.TempDir(), "functions")
	cc := testenv.Tool(t, "gcc")
	text, err := exec.Command(cc, "-nostdlib", "-no-pie", "-Wl,-e,good", "-o", out, "testdata/functions.s").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	f, err := elffile.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	object, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	symbols, err := object.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	p, err := cfg.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return p, at
}

// leftOut returns the reasons by the name of the function.
func leftOut(p *cfg.Program) map[string]string {
	out := map[string]string{}
	for f, why := range p.LeftOut() {
		out[p.Name(f)] = why
	}
	return out
}

// A function is left out if its instructions are in doubt.
func TestLeftOut(t *testing.T) {
	for name, want := range map[string]string{
		"good":    "",
		"callee":  "",
		"sized":   "",
		"skips":   "no decoded instruction begins",
		"unknown": "unknown instruction",
		"outer":   "overlaps",
		"inner":   "overlaps",
		"cut":     "unknown instruction",
		"inline":  "calls an address inside itself",
	} {
		p, at := assemble(t)
		f := p.Function(at[name])
		if why := leftOut(p)[name]; (f != nil) != (want == "") || !strings.Contains(why, want) {
			t.Errorf("%s: got left out because %q, want %q", name, why, want)
		}
	}
}

// If an executed address is not the start of a decoded instruction, the sweep was wrong.
func TestCheck(t *testing.T) {
	p, at := assemble(t)
	if !p.Check(at["sized"]) || !p.Check(at["sized"]+5) {
		t.Error("the instructions of sized are not found")
	}
	if p.Check(at["sized"]+2) || p.Function(at["sized"]) != nil || p.Check(at["sized"]) {
		t.Error("sized is not left out although an executed address is inside an instruction")
	}
}

// A jump into the middle of another function's instruction leaves out both.
func TestEntered(t *testing.T) {
	p, at := assemble(t)
	if p.Function(at["callee"]) == nil || p.Function(at["enters"]) != nil || p.Function(at["callee"]) != nil {
		t.Errorf("got left out %v, want callee and enters", leftOut(p))
	}
	// If enters is decoded first, the jump is found when Reach follows it.
	p, at = assemble(t)
	if p.Function(at["enters"]) == nil {
		t.Fatal("enters is left out before callee is known")
	}
	p.Reach(at["enters"], func(uint64, instruction.Instruction) {})
	if p.Function(at["callee"]) != nil {
		t.Error("callee is not left out")
	}
}

func TestReach(t *testing.T) {
	p, at := assemble(t)
	var found []uint64
	reach := func(addr uint64) {
		p.Reach(addr, func(addr uint64, i instruction.Instruction) { found = append(found, addr) })
	}
	good := at["good"]
	reach(good)
	if want := []uint64{good + 2}; !slices.Equal(found, want) {
		t.Fatalf("got jumps %#x, want %#x", found, want)
	}
	reach(good + 4) // not taken: the call and the code after it
	if want := []uint64{good + 2, at["callee"]}; !slices.Equal(found, want) {
		t.Fatalf("got jumps %#x, want %#x", found, want)
	}
	i, ok := p.At(good + 2)
	if !ok || i.Kind != instruction.ConditionalJump || i.Condition != 4 {
		t.Fatalf("got %+v, want je", i)
	}
	reach(i.Target)
	reach(i.Target)
	if len(found) != 3 {
		t.Fatalf("got jumps %#x, want one more, once", found)
	}
	blocks := p.Blocks(nil)
	starts := map[uint64]bool{}
	for _, b := range blocks {
		starts[b.Start] = true
	}
	if !starts[good] || !starts[good+4] || !starts[i.Target] || !starts[at["callee"]] || starts[at["callee"]+2] {
		t.Errorf("got blocks at %v, want the reached ones", starts)
	}
	if at := cfg.Find(blocks, good+3); at < 0 || blocks[at].Start != good {
		t.Error("the block at good+3 is not found")
	}
}

// A restartable sequence extends from its first instruction to its end.
func TestRestartable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sequences")
	c := testenv.Command(t, testenv.Tool(t, "gcc"), "-o", path, "../../symbols/rseq/testdata/sequences.c")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := cfg.New(f)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range testenv.Symbols(t, path) {
		at[s.Name] = s.Value
	}
	for addr, want := range map[uint64]bool{
		at["first_begin"] - 1: false, at["first_begin"]: true, at["first_end"] - 1: true, at["first_end"]: false, at["first_abort"]: false,
	} {
		if got := p.Restartable(addr); got != want {
			t.Errorf("%#x: got %t, want %t", addr, got, want)
		}
	}
}
