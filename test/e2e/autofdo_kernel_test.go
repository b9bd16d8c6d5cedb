package e2e

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// moved is the distance by which the kernel has moved itself (KASLR).
const moved = 0x1c000000

// A user-space program, and a module.
const (
	userCode   = 0x555555555000
	moduleCode = 0xffffffffc0400000
)

// vmlinux is testdata/kernel.c.
type vmlinux struct {
	path, buildID string
	text          []byte
	start         uint64
	functions     []uint64
}

func buildVmlinux(t *testing.T) *vmlinux {
	t.Helper()
	k := &vmlinux{path: filepath.Join(t.TempDir(), "vmlinux")}
	flags := []string{"-O2", "-g", "-fdebug-info-for-profiling", "-ffreestanding", "-mcmodel=kernel", "-mno-red-zone", "-fno-pic", "-nostdlib", "-static", "-no-pie",
		"-fuse-ld=lld", "-Wl,--image-base=0xffffffff81000000", "-Wl,-Ttext=0xffffffff81200000", "-Wl,--build-id", "-o", k.path, "testdata/kernel.c"}
	if b, err := exec.Command(testenv.Tool(t, "clang-19"), flags...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	e, err := elffile.Open(k.path)
	if err != nil {
		t.Fatal(err)
	}
	k.buildID = e.BuildID()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(k.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	if k.text, err = text.Data(); err != nil {
		t.Fatal(err)
	}
	k.start = text.Addr
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			k.functions = append(k.functions, s.Value)
		}
	}
	return k
}

// branches generates taken branches in the kernel, oldest first: system calls and modules
// call functions, whose jumps go either way. Addresses are those in memory.
func (k *vmlinux) branches(t *testing.T, n int) [][2]uint64 {
	t.Helper()
	random := rand.New(rand.NewPCG(17, 2))
	var list [][2]uint64
	var returns []uint64
	for at := uint64(0); len(list) < n; {
		if at-k.start >= uint64(len(k.text)) {
			at, returns = k.functions[random.IntN(len(k.functions))], nil
			list = append(list, [2]uint64{[]uint64{userCode, moduleCode}[random.IntN(2)] + random.Uint64N(4096), at + moved})
		}
		b := k.text[at-k.start:]
		size, flow, known, err := disasm.Step(elf.EM_X86_64, b)
		if err != nil || !known {
			t.Fatalf("instruction at %#x: known = %t, error %v", at, known, err)
		}
		next := at + uint64(size)
		if flow == disasm.Straight || flow == disasm.Conditional && random.IntN(2) == 0 {
			at = next
			continue
		}
		in, err := disasm.Decode(elf.EM_X86_64, b[:size], at)
		if err != nil {
			t.Fatal(err)
		}
		to := uint64(userCode)
		switch targets := in.Targets(); {
		case len(targets) == 1:
			to = targets[0] + moved
			if b[0] == 0xe8 {
				returns = append(returns, next)
			}
		case len(returns) > 0:
			to, returns = returns[len(returns)-1]+moved, returns[:len(returns)-1]
		}
		list = append(list, [2]uint64{at + moved, to})
		at = to - moved
	}
	return list
}

// depth is the number of branches of a sample.
const depth = 32

// script is the text of perf script for branches. mapped is the mapping of the kernel.
func script(mapped string, branches [][2]uint64) string {
	var b strings.Builder
	fmt.Fprintln(&b, mapped)
	fmt.Fprintf(&b, "PERF_RECORD_MMAP -1/0: [%#x(0x10000) @ 0]: x [ext4]\n", uint64(moduleCode))
	fmt.Fprintf(&b, "PERF_RECORD_MMAP2 7/7: [%#x(0x1000) @ 0 08:01 77 0]: r-xp /usr/bin/prog\n", uint64(userCode))
	for ; len(branches) >= depth; branches = branches[depth:] {
		fmt.Fprintf(&b, " %x", branches[depth-1][1])
		for i := range depth {
			e := branches[depth-1-i]
			fmt.Fprintf(&b, " %#x/%#x/P/-/-/0 ", e[0], e[1])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// mapping is perf script's line for the mapping of a kernel.
func (k *vmlinux) mapping(symbol string, start uint64) string {
	return fmt.Sprintf("PERF_RECORD_MMAP -1/0: [%#x(0x20000000) @ %#[1]x]: x [kernel.kallsyms]%s", start, symbol)
}

// LLVM's own tool makes the same profile of the kernel from the same branches, line by line.
func TestConvertKernelForClang(t *testing.T) {
	profgen := testenv.Tool(t, "llvm-profgen-19")
	k := buildVmlinux(t)
	branches := k.branches(t, depth*200)
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
	in := writeTo(t, filepath.Join(dir, "text"), script(k.mapping("_text", k.start+moved), branches))
	if b, err := exec.Command(profgen, "--format", "text", "--kernel", "--perfscript", in, "--binary", k.path, "-o", theirs).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	want := read(t, theirs)
	if n := strings.Count(want, "\n"); n < 30 {
		t.Errorf("got only %d lines from llvm-profgen", n)
	}
	r := fulgur(t, "convert", "--format", "autofdo-text", "--binary", k.path, "-o", ours, in)
	if r.code != 0 || !strings.Contains(r.stderr, "make LLVM=1 CLANG_AUTOFDO_PROFILE="+ours) {
		t.Fatalf("result = %+v, want exit code 0 and a command for the kernel's build", r)
	}
	if d := cmp.Diff(want, read(t, ours)); d != "" {
		t.Errorf("(-llvm-profgen +fulgur):\n%s", d)
	}

	// By build ID, as newer versions of perf record it.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/buildid/"+k.buildID+"/debuginfo" {
			http.NotFound(w, q)
			return
		}
		http.ServeFile(w, q, k.path)
	}))
	defer server.Close()
	t.Setenv("DEBUGINFOD_URLS", server.URL)
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	recorded := fmt.Sprintf("PERF_RECORD_MMAP2 -1/0: [%#x(0x20000000) @ %#[1]x <%s>]: ---p [kernel.kallsyms]_stext", k.start+moved+64, k.buildID)
	in = writeTo(t, in, script(recorded, branches))
	r = fulgur(t, "convert", "-q", "--format", "autofdo-text", "--kernel", in)
	if d := cmp.Diff(want, r.stdout); d != "" || r.code != 0 {
		t.Errorf("exit code %d: %s; by build ID (-llvm-profgen +fulgur):\n%s", r.code, r.stderr, d)
	}
	// In a directory, the file gets a name like other profiles.
	if r := fulgur(t, "convert", "-q", "--format", "autofdo", "--kernel", "-o", dir, in); r.code != 0 {
		t.Fatalf("result = %+v", r)
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*."+k.buildID+".afdo")); err != nil || len(found) != 1 {
		t.Errorf("got %d profiles named by build ID, error %v", len(found), err)
	}
}

// Inputs that make no profile of the kernel are rejected with a reason.
func TestRefusedKernel(t *testing.T) {
	k := buildVmlinux(t)
	t.Setenv("DEBUGINFOD_URLS", "")
	dir := t.TempDir()
	branches := k.branches(t, depth*20)
	input := func(name, mapped string) string {
		return writeTo(t, filepath.Join(dir, name), script(mapped, branches))
	}
	right := input("right", k.mapping("_text", k.start+moved))
	elsewhere := input("elsewhere", k.mapping("_text", k.start+moved+64))
	other := input("other", fmt.Sprintf("PERF_RECORD_MMAP2 -1/0: [%#x(0x2000) @ %#[1]x <0123456789>]: ---p [kernel.kallsyms]_text", k.start+moved))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"another address":       {[]string{"--format", "autofdo", "--binary", k.path, elsewhere}, "is not the code that ran"},
		"unknown symbol":        {[]string{"--format", "autofdo", "--binary", k.path, input("symbol", k.mapping("_start2", k.start))}, `has no symbol "_start2"`},
		"no mapping":            {[]string{"--format", "autofdo", "--binary", k.path, input("none", "")}, "does not say where the kernel is"},
		"another build":         {[]string{"--format", "autofdo", "--binary", k.path, other}, "was recorded with build ID 0123456789"},
		"no such build":         {[]string{"--format", "autofdo", "--kernel", other}, "vmlinux with build ID 0123456789: not found; install the debug symbols"},
		"no build ID":           {[]string{"--format", "autofdo", "--kernel", right}, "no build ID of the kernel: give its vmlinux with --binary"},
		"BOLT":                  {[]string{"--format", "preagg", "--binary", k.path, right}, "is a kernel"},
		"BOLT, by build ID":     {[]string{"--format", "preagg", "--kernel", right}, "--kernel is only for AutoFDO"},
		"a program":             {[]string{"--format", "autofdo", "--kernel", "--binary", "/bin/sh", right}, "is not a kernel"},
		"all binaries":          {[]string{"--all-binaries", "-o", dir, right}, "no process mapped any file that exists here; open /usr/bin/prog"},
		"the kernel and others": {[]string{"--format", "autofdo", "--kernel", "--all-binaries", "-o", dir, right}, "cannot be combined"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fulgur(t, append([]string{"convert"}, test.args...)...)
			if r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, test.want) {
				t.Errorf("result = %+v, want an error about %q and no output", r, test.want)
			}
		})
	}
}
