package perfdata

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/bolt"
	"fulgur/internal/testenv"
)

const walkSource = `
#include <string.h>
#include <stdio.h>
static int calls;
__attribute__((noinline)) static int leaf(int x) { calls++; return x % 3 ? x * 7 : x - 1; }
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) static int classify(const char *s) {
	int n = 0;
	for (; *s; s++) {
		if (*s >= 'a' && *s <= 'z') n += leaf(*s);
		else if (*s == ' ') n--;
		else n += fib(*s & 7);
	}
	return n;
}
__attribute__((noinline)) int run(int argc, const char *arg) {
	int sum = 0;
	for (int i = 0; i < argc * 10; i++) {
		sum += classify(arg) + (int)strlen(arg);
		if (sum & 1) puts(arg);
	}
	return sum;
}
#ifndef LIBRARY
int main(int argc, char **argv) { return run(argc, argv[argc - 1]) & 1; }
#endif
`

// compileWalk compiles the program or library for the walks.
func compileWalk(t testing.TB, name string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, name)
	source := filepath.Join(dir, "walk.c")
	if err := os.WriteFile(source, []byte(walkSource), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O2", "-Wl,--emit-relocs", "-Wl,--build-id=sha1", "-o", out, source}, flags...)
	if b, err := exec.Command(testenv.Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, b)
	}
	return out
}

// instruction is a disassembled instruction.
type instruction struct {
	op     string
	target uint64 // of a direct branch, else 0
	next   uint64 // address of the next instruction
}

// program is disassembled code.
type program struct {
	code   map[uint64]*instruction
	starts []uint64 // of functions, sorted
}

func disassemble(t testing.TB, path string) *program {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "objdump"), "-d", "--no-show-raw-insn", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{code: make(map[uint64]*instruction)}
	var last *instruction
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if addr, name, ok := strings.Cut(line, " <"); ok && strings.HasSuffix(name, ">:") && !strings.Contains(name, "@plt") {
			if start, err := strconv.ParseUint(addr, 16, 64); err == nil {
				p.starts = append(p.starts, start)
			}
		}
		addr, text, ok := strings.Cut(strings.TrimLeft(line, " "), ":\t")
		at, err := strconv.ParseUint(addr, 16, 64)
		if !ok || err != nil {
			last = nil
			continue
		}
		if last != nil {
			last.next = at
		}
		words := strings.Fields(text)
		for len(words) > 1 && (words[0] == "bnd" || words[0] == "notrack" || words[0] == "repz") {
			words = words[1:]
		}
		last = &instruction{op: words[0]}
		if len(words) > 1 && !strings.HasPrefix(words[1], "*") {
			last.target, _ = strconv.ParseUint(words[1], 16, 64)
		}
		p.code[at] = last
	}
	if len(p.starts) == 0 {
		t.Fatal("no functions in the disassembly")
	}
	return p
}

// foreign is the address of the code in other files that the walk calls.
const foreign = 0x7f12_3456_7000

// walker takes random branches through a program.
type walker struct {
	*program
	rng     *rand.Rand
	pc      uint64
	returns []uint64
	ring    []bolt.Entry // oldest first
}

// restart starts again at a random function.
func (w *walker) restart() {
	w.pc, w.returns, w.ring = w.starts[w.rng.IntN(len(w.starts))], nil, nil
}

// take records a taken branch.
func (w *walker) take(to uint64) {
	e := bolt.Entry{From: w.pc, To: to, Flags: bolt.FlagPredicted}
	if w.rng.IntN(10) == 0 {
		e.Flags = bolt.FlagMispredicted
	}
	w.record(e)
	w.pc = to
}

func (w *walker) record(e bolt.Entry) {
	w.ring = append(w.ring, e)
	if len(w.ring) > 32 {
		w.ring = w.ring[1:]
	}
}

// interrupt records an entry to the kernel and the return.
func (w *walker) interrupt() {
	const kernel = 0xffff_ffff_8100_0000
	w.record(bolt.Entry{From: w.pc, To: kernel, Flags: bolt.FlagPredicted})
	w.record(bolt.Entry{From: kernel + 0x100, To: w.pc, Flags: bolt.FlagPredicted})
}

// leave records a call to another file and the return.
func (w *walker) leave() {
	w.take(foreign)
	w.pc += 0x40
	w.ret()
}

func (w *walker) ret() {
	if len(w.returns) == 0 {
		w.restart()
		return
	}
	to := w.returns[len(w.returns)-1]
	w.returns = w.returns[:len(w.returns)-1]
	w.take(to)
}

// step executes an instruction.
func (w *walker) step() {
	in := w.code[w.pc]
	switch {
	case in == nil || in.next == 0 || len(w.returns) > 100:
		w.restart()
	case strings.HasPrefix(in.op, "ret"):
		w.ret()
	case strings.HasPrefix(in.op, "call"):
		w.returns = append(w.returns, in.next)
		if in.target == 0 {
			w.leave()
			return
		}
		w.take(in.target)
	case strings.HasPrefix(in.op, "jmp") && in.target == 0:
		w.leave()
	case strings.HasPrefix(in.op, "jmp"):
		w.take(in.target)
	case in.op[0] == 'j' && w.rng.IntN(2) == 0:
		w.take(in.target)
	default:
		w.pc = in.next
	}
}

// stack walks on and returns the last branches, newest first, for a process with the
// given load bias.
func (w *walker) stack(bias uint64) []bolt.Entry {
	if w.pc == 0 {
		w.restart()
	}
	for n := 20 + w.rng.IntN(300); n > 0 || len(w.ring) < 8; n-- {
		w.step()
		if w.rng.IntN(200) == 0 && w.code[w.pc] != nil {
			w.interrupt()
		}
	}
	var out []bolt.Entry
	move := func(addr uint64) uint64 {
		if w.code[addr] != nil {
			addr += bias
		}
		return addr
	}
	for _, e := range w.ring {
		out = append([]bolt.Entry{{From: move(e.From), To: move(e.To), Flags: e.Flags}}, out...)
	}
	if w.rng.IntN(20) == 0 {
		out = append(out, bolt.Entry{}, bolt.Entry{}) // empty entries are the oldest
	}
	return out
}
