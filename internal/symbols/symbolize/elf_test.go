package symbolize

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

const cxxSource = `
#include <vector>
namespace app { template <class T> struct Box { __attribute__((noinline)) static int size(const T &t, int n) { return t.size() + n; } }; }
extern "C" __attribute__((noinline)) int plain(int n) { return n * 3; }
extern "C" int __plain(int) __attribute__((alias("plain")));
static __attribute__((noinline)) int local_one(int n) { asm(""); return n + 1; }
asm(".text\nunsized_asm:\n nop\n nop\n nop\n nop\n.Llabel: nop\n nop\n.globl after_asm\n.type after_asm,%function\nafter_asm: ret\n.size after_asm,.-after_asm\n");
int main(int argc, char **argv) { std::vector<int> v(argc); return app::Box<std::vector<int>>::size(v, plain(local_one(argc))); }
`

func TestCXX(t *testing.T) {
	path := compile(t, "a.cc", cxxSource, "g++", "-O1", "-Wa,-L", "-o", "OUT", "IN")
	e := openFile(t, path, Options{})
	syms := nm(t, path)
	checkNM(t, e, syms)

	raw := openFile(t, path, Options{NoDemangle: true})
	for _, s := range syms {
		switch {
		case strings.Contains(s.name, "3Box"):
			const want = "app::Box<std::vector<int, std::allocator<int> > >::size"
			f := lookup(t, e, s.addr+1)
			if f.Name != want || f.SystemName != s.name || f.Offset != 1 {
				t.Errorf("demangled: got %+v, want %s", f, want)
			}
			if f := lookup(t, raw, s.addr); f.Name != s.name {
				t.Errorf("NoDemangle: got %q, want %q", f.Name, s.name)
			}
		case s.name == "plain":
			if f := lookup(t, e, s.addr); f.Name != "plain" {
				t.Errorf("alias: got %q, want the one with fewer underscores", f.Name)
			}
		case s.name == "after_asm":
			// Six bytes of unsized assembly precede it, with a label in the middle.
			for back := uint64(1); back <= 6; back++ {
				if f := lookup(t, e, s.addr-back); f.Name != "unsized_asm" || f.Offset != 6-back {
					t.Errorf("after_asm-%d: got %+v, want unsized_asm+%d", back, f, 6-back)
				}
			}
		}
	}
}

func TestStripped(t *testing.T) {
	path := compile(t, "a.cc", cxxSource, "g++", "-O1", "-shared", "-fPIC", "-s", "-o", "OUT", "IN")
	e := openFile(t, path, Options{})
	checkNM(t, e, nm(t, "-D", path))
}

func Test32Bit(t *testing.T) {
	path := compile(t, "a.c", "int plain(int n) { return n * 3; }\nstatic int other(int n) { return n; }\nint (*p)(int) = other;\n",
		"gcc", "-m32", "-shared", "-nostdlib", "-Wl,--build-id", "-o", "OUT", "IN")
	e := openFile(t, path, Options{})
	checkNM(t, e, nm(t, path))
	if notes := run(t, "", "readelf", "-n", path); !strings.Contains(notes, "Build ID: "+e.BuildID()+"\n") {
		t.Errorf("got build ID %q, want readelf's\n%s", e.BuildID(), notes)
	}
	text := elfSection(t, path, ".text")
	if got, ok := e.Address(text.Offset); !ok || got != text.Addr {
		t.Errorf("Address(%#x) = %#x, %v; want %#x", text.Offset, got, ok, text.Addr)
	}
}

// elfSection returns a section header from the standard library.
func elfSection(t *testing.T, path, name string) elf.SectionHeader {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(name)
	if s == nil {
		t.Fatalf("%s has no section %s", path, name)
	}
	return s.SectionHeader
}

func TestRust(t *testing.T) {
	const source = `
mod app { pub struct Box<T>(pub T); impl<T: Copy + Into<u64>> Box<T> { #[inline(never)] pub fn size(&self) -> u64 { self.0.into() + 1 } } }
fn main() { println!("{}", app::Box(std::env::args().count() as u32).size()); }
`
	for _, scheme := range []string{"legacy", "v0"} {
		t.Run(scheme, func(t *testing.T) {
			args := []string{"-O", "-o", "OUT", "IN"}
			if scheme == "v0" {
				args = append([]string{"-C", "symbol-mangling-version=v0"}, args...)
			}
			path := compile(t, "a.rs", source, "rustc", args...)
			e := openFile(t, path, Options{})
			syms := nm(t, path)
			checkNM(t, e, syms)
			found := false
			for _, s := range syms {
				if !strings.Contains(s.name, "3app") || !strings.Contains(s.name, "4size") {
					continue
				}
				found = true
				f := lookup(t, e, s.addr)
				if !strings.Contains(f.Name, "app::Box<") || !strings.HasSuffix(f.Name, "::size") {
					t.Errorf("%s: got %s, want app::Box<…>::size", s.name, f.Name)
				}
			}
			if !found {
				t.Error("got no symbol of the method")
			}
		})
	}
}

func TestDistributionFiles(t *testing.T) {
	for _, path := range []string{testenv.Library("libc.so.6"), "/usr/bin/python3"} {
		t.Run(path, func(t *testing.T) {
			e := openFile(t, path, Options{})
			checkNM(t, e, nm(t, "-D", path))
			notes := run(t, "", "readelf", "-n", path)
			if e.BuildID() == "" || !strings.Contains(notes, "Build ID: "+e.BuildID()+"\n") {
				t.Errorf("got build ID %q, want readelf's\n%s", e.BuildID(), notes)
			}
			if e.HasSymbols() {
				t.Error("HasSymbols is true for a stripped file")
			}
		})
	}
}

// TestAddr2line compares every 64th byte of the text with addr2line, which shows "??" for
// addresses without a symbol.
func TestAddr2line(t *testing.T) {
	path := compile(t, "a.cc", cxxSource, "g++", "-O1", "-static", "-o", "OUT", "IN")
	e := openFile(t, path, Options{})
	text := elfSection(t, path, ".text")
	var addrs []uint64
	var stdin strings.Builder
	for a := text.Addr; a < text.Addr+text.Size; a += 64 {
		addrs = append(addrs, a)
		fmt.Fprintf(&stdin, "%#x\n", a)
	}
	want := strings.Split(run(t, stdin.String(), "addr2line", "-f", "-e", path), "\n")
	frames, err := e.LookupBatch(addrs)
	if err != nil {
		t.Fatal(err)
	}
	aliases := map[uint64][]string{}
	for _, s := range nm(t, path) {
		aliases[s.addr] = append(aliases[s.addr], s.name)
	}
	named, wrong := 0, 0
	for i, a := range addrs {
		got := "??"
		same := false
		if len(frames[i]) == 1 {
			named++
			got = frames[i][0].SystemName
			for _, n := range aliases[a-frames[i][0].Offset] {
				same = same || n == want[2*i]
			}
		}
		if got != want[2*i] && !same {
			wrong++
			t.Logf("%#x: %s, addr2line has %s", a, got, want[2*i])
		}
	}
	// Both numbers depend only on the compiler and on addr2line. Code of the C library written in
	// assembly may have no names.
	if named < len(addrs)/2 || named == 0 {
		t.Errorf("got names for %d of %d addresses, want at least half", named, len(addrs))
	}
	// addr2line extends a sized symbol beyond its end.
	if wrong*100 > len(addrs) {
		t.Errorf("%[2]d addresses: %[1]d differ from addr2line", wrong, len(addrs))
	}
}

func TestVDSO(t *testing.T) {
	e, err := OpenVDSO(Options{})
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := dynamicFunctions(e)
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint64][]string{}
	for _, s := range symbols {
		names[s.Value] = append(names[s.Value], s.Name)
	}
	if len(names) == 0 {
		t.Fatal("got no functions of the vdso")
	}
	for addr, want := range names {
		if f := lookup(t, e, addr); !slices.Contains(want, f.Name) {
			t.Errorf("%#x: got %+v, want one of %v", addr, f, want)
		}
	}
	if e.BuildID() == "" {
		t.Error("got no build ID")
	}
}

// dynamicFunctions lists the functions of e with the standard library.
func dynamicFunctions(e *ELF) ([]elf.Symbol, error) {
	image, err := e.File().Bytes(0, uint64(e.File().Size()), "image")
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	symbols, err := f.DynamicSymbols()
	var functions []elf.Symbol
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			functions = append(functions, s)
		}
	}
	return functions, err
}

func TestNotELF(t *testing.T) {
	for _, content := range []string{"", "\x7fELF", strings.Repeat("x", 100), "#!/bin/sh\n"} {
		if _, err := OpenELF(strings.NewReader(content), int64(len(content)), "file", Options{}); err == nil {
			t.Errorf("got no error for %q", content)
		}
	}
}

func FuzzELF(f *testing.F) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(self[:4096], uint64(0x1000))
	if e, err := OpenVDSO(Options{}); err == nil {
		image, err := e.File().Bytes(0, uint64(e.File().Size()), "image")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(image, uint64(0x800))
	}
	f.Fuzz(func(t *testing.T, data []byte, addr uint64) {
		e, err := OpenELF(strings.NewReader(string(data)), int64(len(data)), "fuzz", Options{})
		if err != nil {
			return
		}
		e.Address(addr)
		frames, _ := e.LookupBatch([]uint64{0, addr / 2, addr})
		if len(frames) != 3 {
			t.Fatalf("got %d results, want 3", len(frames))
		}
	})
}
