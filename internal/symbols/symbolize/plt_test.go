package symbolize

import (
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

// TestPLT checks that stubs are named after their functions.
func TestPLT(t *testing.T) {
	const source = `
#include <stdio.h>
namespace app { void far(int); }
static int run_one(int n) { return n + 1; }
extern "C" { static int (*choose(void))(int) { return run_one; } }
extern "C" int chosen(int) __attribute__((ifunc("choose"), visibility("hidden")));
int start(int n, char **v) { puts(v[0]); app::far(n); return chosen(n); }
`
	for _, stripped := range []string{"-g", "-s"} {
		path := compile(t, "a.cc", source, "g++", "-O1", "-shared", "-fPIC", stripped, "-o", "OUT", "IN")
		e := openFile(t, path, Options{})
		entries, err := e.File().PLT()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]string{}
		for _, s := range entries {
			f := lookup(t, e, s.Addr+s.Size-1)
			names[f.SystemName] = f.Name
			if f.Offset != s.Size-1 {
				t.Errorf("%s: got offset %d, want %d", f.Name, f.Offset, s.Size-1)
			}
			if stripped == "-s" && s.Resolver != 0 {
				if want := "*ABS*+0x" + strconv.FormatUint(s.Resolver, 16) + "@plt"; f.Name != want {
					t.Errorf("stub of a resolver without a name: got %q, want %q", f.Name, want)
				}
			}
		}
		if names["puts@plt"] != "puts@plt" || names["_ZN3app3farEi@plt"] != "app::far@plt" {
			t.Errorf("got names %v, want puts@plt and app::far@plt", names)
		}
		if _, ok := names["chosen@plt"]; ok != (stripped == "-g") {
			t.Errorf("%s: got names %v, want chosen@plt: %v", stripped, names, stripped == "-g")
		}
	}
}

// debugVariants returns a library, a stripped copy, its debug file, and a variant with
// .gnu_debugdata as made by Fedora's find-debuginfo.
func debugVariants(t *testing.T) (full, stripped, debug, mini string) {
	t.Helper()
	const source = `
static __attribute__((noinline)) int hidden(int n) { __asm__(""); return n * 3; }
int exported(int n) { return hidden(n) + 1; }
__asm__(".text\n.type unsized,%function\nunsized: nop\n nop\n nop\n ret\n");
int exported_too(int n) { return hidden(n) + 2; }
`
	full = compile(t, "a.c", source, "gcc", "-O1", "-g", "-fPIC", "-shared", "-o", "OUT", "IN")
	dir := filepath.Dir(full)
	stripped, debug, mini = filepath.Join(dir, "stripped"), filepath.Join(dir, "debug"), filepath.Join(dir, "mini")
	run(t, "", "objcopy", "--only-keep-debug", full, debug)
	run(t, "", "objcopy", "--strip-all", full, stripped)
	packed := filepath.Join(dir, "packed")
	run(t, "", "objcopy", "-S", "--keep-symbol=hidden", "--keep-symbol=unsized", debug, packed)
	run(t, "", "xz", packed)
	run(t, "", "objcopy", "--add-section", ".gnu_debugdata="+packed+".xz", stripped, mini)
	return full, stripped, debug, mini
}

// TestSeparateSymbols finds symbols in a debug file and in .gnu_debugdata.
func TestSeparateSymbols(t *testing.T) {
	full, stripped, debug, mini := debugVariants(t)
	syms := nm(t, full)
	var unsized uint64
	for line := range strings.Lines(run(t, "", "nm", full)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "unsized" {
			unsized, _ = strconv.ParseUint(f[0], 16, 64)
		}
	}

	bare := openFile(t, stripped, Options{})
	if bare.HasSymbols() {
		t.Error("HasSymbols is true for a stripped file")
	}
	separate, err := elffile.Open(debug)
	if err != nil {
		t.Fatal(err)
	}
	defer separate.Close()
	withFile := openFile(t, stripped, Options{})
	withFile.debugInfo = func() (*debugInfo, error) { return &debugInfo{file: &debugfile.File{File: separate}}, nil }
	for name, e := range map[string]*ELF{"debug file": withFile, ".gnu_debugdata": openFile(t, mini, Options{})} {
		if !e.HasSymbols() {
			t.Errorf("%s: HasSymbols is false", name)
		}
		var wanted []nmSymbol
		for _, s := range syms {
			if s.name == "hidden" || s.name == "exported" || s.name == "exported_too" {
				wanted = append(wanted, s)
			}
		}
		checkNM(t, e, wanted)
		if f := lookup(t, e, unsized+3); f.Name != "unsized" || f.Offset != 3 {
			t.Errorf("%s: got %+v, want unsized+3", name, f)
		}
	}
}

// TestExportedBehindUnsized checks that the symbols of both tables of a file with
// .gnu_debugdata limit each other's ranges.
func TestExportedBehindUnsized(t *testing.T) {
	own, ownNames := elftest.Symbols(elf.SHT_SYMTAB, 4, elftest.Symbol{Name: "unsized", Value: 0x1000, Section: 1, Type: elf.STT_FUNC})
	dynamic, dynamicNames := elftest.Symbols(elf.SHT_DYNSYM, 6, elftest.Symbol{Name: "exported", Value: 0x1100, Size: 16, Binding: elf.STB_GLOBAL, Section: 1, Type: elf.STT_FUNC})
	e := newFile(t, elftest.File{Sections: append(codeAndData(), own, ownNames, dynamic, dynamicNames)})
	for addr, want := range map[uint64]string{0x10ff: "unsized", 0x1100: "exported", 0x110f: "exported"} {
		if f := lookup(t, e, addr); f.Name != want {
			t.Errorf("%#x: got %s, want %s", addr, f.Name, want)
		}
	}
	if frames, err := e.LookupBatch([]uint64{0x1110}); err != nil || frames[0] != nil {
		t.Errorf("after a sized symbol: got %v, %v; want none", frames, err)
	}
}

// TestLibcWithDebugFile compares all symbols of libc with its debug package.
func TestLibcWithDebugFile(t *testing.T) {
	const libc = "/lib/x86_64-linux-gnu/libc.so.6"
	e := openFile(t, libc, Options{})
	id := e.BuildID()
	path := "/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + ".debug"
	testenv.File(t, path) // of libc6-dbg
	e.Search(t.Context(), debugfiletest.NewFinder(t), "/", libc)
	checkNM(t, e, nm(t, path))
	for _, s := range nm(t, path) {
		if s.name != "write" {
			continue
		}
		// write is weak, like __write, but preferred to the local __GI___write.
		if f := lookup(t, e, s.addr); f.Name != "write" {
			t.Errorf("got %s, want write", f.Name)
		}
	}
}

// rangeReader counts the reads in a range of offsets.
type rangeReader struct {
	io.ReaderAt
	low, high int64
	reads     int
}

func (r *rangeReader) ReadAt(b []byte, off int64) (int, error) {
	if off < r.high && off+int64(len(b)) > r.low {
		r.reads++
	}
	return r.ReaderAt.ReadAt(b, off)
}

// The relocations that name stubs are read once, however often stubs are looked up.
func TestPLTReadOnce(t *testing.T) {
	path := compile(t, "a.c", `int puts(const char *); int start(void) { return puts(""); }`, "gcc", "-O1", "-shared", "-fPIC", "-o", "OUT", "IN")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r := &rangeReader{ReaderAt: f}
	e, err := OpenELF(r, info.Size(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	entries, err := e.File().PLT()
	if err != nil || len(entries) == 0 {
		t.Fatalf("got %v, %v, want stubs", entries, err)
	}
	relocations := e.File().Section(".rela.plt")
	r.low, r.high = int64(relocations.Offset), int64(relocations.Offset+relocations.Size)
	for range 3 {
		if f := lookup(t, e, entries[0].Addr); f.Name == "" {
			t.Error("got no name")
		}
	}
	if r.reads != 1 {
		t.Errorf("the relocations were read %d times, want once", r.reads)
	}
}
