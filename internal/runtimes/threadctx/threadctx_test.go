package threadctx

import (
	"debug/elf"
	"runtime"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// The way in which a file accesses the variable is found, for each model of thread-local storage.
// The slot is of the variable, or of another one of the same file.
func TestDetect(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the compiler's arguments are for amd64")
	}
	for name, test := range map[string]struct {
		flags  []string
		kind   bpf.LabelKind
		slot   elf.R_X86_64
		offset func(variable, other uint64) uint64 // nil for 0
		fails  bool
	}{
		"program":         {[]string{"-DMAIN", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}, bpf.LabelsContextOffset, 0, func(v, _ uint64) uint64 { return v - 8 }, false},
		"at an address":   {[]string{"-DMAIN", "-no-pie", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}, bpf.LabelsContextOffset, 0, func(v, _ uint64) uint64 { return v - 8 }, false},
		"descriptor":      {[]string{"-shared", "-fPIC", "-mtls-dialect=gnu2"}, bpf.LabelsContextDescriptor, elf.R_X86_64_TLSDESC, nil, false},
		"general dynamic": {[]string{"-shared", "-fPIC", "-mtls-dialect=gnu"}, bpf.LabelsContextIndex, elf.R_X86_64_DTPMOD64, nil, false},
		"initial exec":    {[]string{"-shared", "-fPIC", "-ftls-model=initial-exec"}, bpf.LabelsContextSlot, elf.R_X86_64_TPOFF64, nil, false},
		"other descriptor": {[]string{"-shared", "-fPIC", "-mtls-dialect=gnu2", "-DUNUSED", "-DOTHER"}, bpf.LabelsContextDescriptor, elf.R_X86_64_TLSDESC,
			func(v, other uint64) uint64 { return v - other }, false},
		"other module": {[]string{"-shared", "-fPIC", "-mtls-dialect=gnu", "-DUNUSED", "-DOTHER"}, bpf.LabelsContextModule, elf.R_X86_64_DTPMOD64, func(v, _ uint64) uint64 { return v }, false},
		"other offset": {[]string{"-shared", "-fPIC", "-ftls-model=initial-exec", "-DUNUSED", "-DOTHER"}, bpf.LabelsContextSlot, elf.R_X86_64_TPOFF64,
			func(v, other uint64) uint64 { return v - other }, false},
		"unused":       {[]string{"-shared", "-fPIC", "-DUNUSED"}, 0, 0, nil, true},
		"not exported": {[]string{"-DMAIN"}, 0, 0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := testenv.Compile(t, "variable", "gcc", append([]string{"-O2", "testdata/variable.c"}, test.flags...)...)
			f, err := elffile.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			v, err := Detect(f)
			if err != nil != test.fails || v == nil != (test.kind == 0) {
				t.Fatalf("got %+v, error %v", v, err)
			}
			if v == nil {
				return
			}
			values, err := f.SymbolValues(symbol, "before")
			if err != nil {
				t.Fatal(err)
			}
			var offset uint64
			if test.offset != nil {
				offset = test.offset(values[symbol], values["before"])
			}
			if v.kind != test.kind || v.offset != offset {
				t.Errorf("got kind %d and offset %#x, want %d and %#x", v.kind, v.offset, test.kind, offset)
			}
			found := elf.R_X86_64(0)
			if err := f.EachRela(func(_ *elffile.Section, r elffile.Rela) bool {
				if r.Offset == v.slot {
					found = elf.R_X86_64(r.Type)
				}
				return true
			}); err != nil || found != test.slot {
				t.Errorf("got a slot with relocation %v, error %v, want %v", found, err, test.slot)
			}
			const image, bias = 7, 0x1000
			entry := v.Entry(image, bias, true)
			want := bpf.LabelProcess{Image: image, Kind: uint32(test.kind), Offset: offset}
			if test.slot != 0 {
				want.Slot, want.Vector, want.ModuleShift = v.slot+bias, 8, 4
			}
			if entry != want || v.InProgram() != (test.slot == 0) {
				t.Errorf("got entry %+v, want %+v", entry, want)
			}
		})
	}
}

// The vector of modules is where the C library of each machine has it.
func TestEntry(t *testing.T) {
	for _, test := range []struct {
		machine elf.Machine
		glibc   bool
		vector  int32
		shift   uint32
	}{
		{elf.EM_X86_64, true, 8, 4},
		{elf.EM_X86_64, false, 8, 3},
		{elf.EM_AARCH64, true, 0, 4},
		{elf.EM_AARCH64, false, -8, 3},
	} {
		e := (&Variable{kind: bpf.LabelsContextIndex, machine: test.machine}).Entry(1, 0, test.glibc)
		if e.Vector != test.vector || e.ModuleShift != test.shift {
			t.Errorf("%v, glibc %t: got vector %d and shift %d, want %d and %d", test.machine, test.glibc, e.Vector, e.ModuleShift, test.vector, test.shift)
		}
	}
}
