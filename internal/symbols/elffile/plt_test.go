package elffile

import (
	"debug/elf"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

const pltSource = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
uintptr_t address(void) { return (uintptr_t)strtol; } // makes .plt.got of the call
static int run_one(int n) { return n + 1; }
static int (*choose(void))(int) { return run_one; }
int chosen(int) __attribute__((ifunc("choose")));
int main(int argc, char **argv) { printf("%d\n", chosen(argc)); puts(argv[0]); return (int)strtol(argv[0], 0, 0) + (int)strlen(getenv("HOME")) + (int)address(); }
`

// TestPLT compares the names of stubs with objdump's.
func TestPLT(t *testing.T) {
	for _, path := range distributionFiles {
		t.Run(path, func(t *testing.T) { checkPLT(t, path) })
	}
	for _, tt := range []struct{ name, compiler, linker, flags string }{
		{"lazy", "gcc", "", "-O1 -fno-pie -no-pie"},
		{"now", "gcc", "", "-O1 -fPIE -pie -Wl,-z,now"},
		{"ibt", "gcc", "", "-O1 -fPIE -pie -fcf-protection=full -Wl,-z,ibtplt"},
		{"bnd", "gcc", "", "-O1 -fPIE -pie -Wl,-z,bndplt"},
		{"static", "gcc", "", "-O1 -static"},
		{"gold", "gcc", "ld.gold", "-O1 -fuse-ld=gold -fPIE -pie"},
		{"lld", "gcc", "ld.lld", "-O1 -fuse-ld=lld -fPIE -pie"},
		{"lld ibt", "gcc", "ld.lld", "-O1 -fuse-ld=lld -fPIE -pie -fcf-protection=full -Wl,-z,force-ibt"},
		{"mold", "gcc", "mold", "-O1 -fuse-ld=mold -fPIE -pie"},
		{"arm64", "aarch64-linux-gnu-gcc", "", "-O1 -fPIE -pie"},
		{"arm64 bti", "aarch64-linux-gnu-gcc", "", "-O1 -fPIE -pie -mbranch-protection=standard -Wl,-z,force-bti"},
		{"arm64 pac", "aarch64-linux-gnu-gcc", "", "-O1 -fPIE -pie -Wl,-z,pac-plt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.linker != "" {
				testenv.Tool(t, tt.linker)
			}
			checkPLT(t, compile(t, pltSource, tt.compiler, strings.Fields(tt.flags)...))
		})
	}
}

func checkPLT(t *testing.T, path string) {
	f := open(t, path)
	entries, err := f.PLT()
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Fatal("got no stubs")
	}
	got := map[uint64]string{}
	for i, e := range entries {
		name := e.Name
		if name == "" {
			name = "*ABS*+0x" + strconv.FormatUint(e.Resolver, 16)
		}
		got[e.Addr] = name
		if e.Size < 8 || e.Size > 24 || i > 0 && e.Addr-entries[i-1].Addr < entries[i-1].Size {
			t.Errorf("%#x: got %+v, want a stub of 8 to 24 bytes that does not overlap", e.Addr, e)
		}
	}
	want := objdumpStubs(t, f)
	for _, addr := range slices.Sorted(maps.Keys(want)) {
		if got[addr] != want[addr] {
			t.Errorf("%#x: got %q, want objdump's %q", addr, got[addr], want[addr])
		}
	}
	if len(want) == 0 {
		testenv.Unsupported(t, "objdump knows no stubs of this linker")
	}
	t.Logf("%d stubs, %d in objdump's output", len(got), len(want))
}

// objdumpStubs returns the names of stubs in objdump's output.
func objdumpStubs(t *testing.T, f *File) map[uint64]string {
	objdump := "objdump"
	if f.Machine() == elf.EM_AARCH64 {
		objdump = "aarch64-linux-gnu-objdump"
	}
	args := []string{"-d", f.Name()}
	sections, err := f.Sections()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		if s.IsPLT() {
			args = append(args, "-j", s.Name)
		}
	}
	names := map[uint64]string{}
	for line := range strings.Lines(run(t, objdump, args...)) {
		addr, name, ok := strings.Cut(strings.TrimSpace(line), " <")
		name, isStub := strings.CutSuffix(name, "@plt>:")
		if a, err := strconv.ParseUint(addr, 16, 64); ok && isStub && err == nil {
			names[a] = name
		}
	}
	return names
}

// TestOverlap refuses tables that would take too long to read.
func TestOverlap(t *testing.T) {
	stubs := elftest.Section{Name: ".plt", Addr: 0x1000, Content: make([]byte, maxPLT/2+1)}
	rela := elftest.Section{Name: ".rela.plt", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Content: make([]byte, 24*1000)}
	f := fileOf(t, elftest.File{Sections: []elftest.Section{stubs, stubs}}.Bytes())
	if _, err := f.PLT(); err == nil || !strings.Contains(err.Error(), "procedure linkage tables of more than") {
		t.Errorf("got error %v, want %q in it", err, "procedure linkage tables of more than")
	}
	f = fileOf(t, elftest.File{Sections: []elftest.Section{rela, rela}}.Bytes())
	sections, err := f.Sections()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections[1:3] {
		s.Offset, s.Size = 0, uint64(f.Size())
	}
	if err := f.EachRela(func(*Section, Rela) bool { return true }); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("got error %v, want %q in it", err, "overlap")
	}
}
