package golabels

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

const program = `package main

import (
	"context"
	"runtime/pprof"
)

func main() {
	pprof.Do(context.Background(), pprof.Labels("a", "b"), func(context.Context) {})
}
`

// withC is a part of program with thread-local memory of C.
const withC = `package main

// static __thread int counts[37];
// static int count(int n) { return ++counts[n]; }
import "C"

var count = C.count(3)
`

// build builds a program with the given arguments and environment, and returns its path.
func build(t *testing.T, sources map[string]string, env []string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	sources["go.mod"] = "module program\ngo 1.24\n"
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(testenv.Tool(t, "go"), append([]string{"build", "-o", "program"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOFLAGS="), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "program")
}

// offset returns the offset of a field of a structure in debug information.
func offset(t *testing.T, data *dwarf.Data, structure, field string) uint16 {
	t.Helper()
	for r := data.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			t.Fatalf("%s.%s not found: %v", structure, field, err)
		}
		if e.Tag != dwarf.TagStructType || e.Val(dwarf.AttrName) != structure {
			continue
		}
		typ, err := data.Type(e.Offset)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range typ.(*dwarf.StructType).Field {
			if f.Name == field {
				return uint16(f.ByteOffset)
			}
		}
	}
}

func detect(t *testing.T, path string) *bpf.LabelProcess {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entry, err := Detect(f)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// The offsets equal those in debug information, and are found without it.
func TestDetect(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sources map[string]string
		env     []string
		args    []string
	}{
		"amd64":                {map[string]string{"main.go": program}, []string{"GOARCH=amd64", "CGO_ENABLED=0"}, nil},
		"arm64":                {map[string]string{"main.go": program}, []string{"GOARCH=arm64", "CGO_ENABLED=0"}, nil},
		"position-independent": {map[string]string{"main.go": program}, []string{"GOARCH=amd64", "CGO_ENABLED=0"}, []string{"-buildmode=pie"}},
	}
	if _, err := exec.LookPath("gcc"); err == nil {
		of := tests["amd64"]
		of.sources, of.env = map[string]string{"main.go": program, "c.go": withC}, []string{"CGO_ENABLED=1"}
		tests["with C"] = of
		of.args = []string{"-buildmode=pie"}
		tests["with C, position-independent"] = of
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := build(t, test.sources, test.env, test.args...)
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			data, err := f.DWARF()
			if err != nil {
				t.Fatal(err)
			}
			want := &bpf.LabelProcess{
				Current: offset(t, data, "runtime.m", "curg"), Labels: offset(t, data, "runtime.g", "labels"),
				Kind: uint32(bpf.LabelsGoSlice), ThreadOffset: threadLocal(t, f),
			}
			if m := offset(t, data, "runtime.g", "m"); m != 48 {
				t.Errorf("got m at %d, want 48", m)
			}
			if got := detect(t, path); got == nil || *got != *want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			stripped := build(t, test.sources, test.env, append(test.args, "-ldflags=-s -w")...)
			if got := detect(t, stripped); got == nil || *got != *want {
				t.Errorf("stripped: got %+v, want %+v", got, want)
			}
		})
	}
}

// threadLocal returns the offset of g from the thread pointer, 0 if it is in a register. The
// thread-local memory of a program for amd64 ends at the thread pointer.
func threadLocal(t *testing.T, f *elf.File) int32 {
	t.Helper()
	if f.Machine != elf.EM_X86_64 {
		return 0
	}
	symbols, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name != "runtime.tlsg" || elf.ST_TYPE(s.Info) != elf.STT_TLS {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_TLS {
				return int32(s.Value) - int32((p.Memsz+p.Align-1)&^(p.Align-1))
			}
		}
	}
	return -8
}

// Programs that cannot set labels have no entry.
func TestDetectNone(t *testing.T) {
	t.Parallel()
	path := build(t, map[string]string{"main.go": "package main\n\nfunc main() {}\n"}, nil)
	if got := detect(t, path); got != nil {
		t.Errorf("a program without labels: got %+v", got)
	}
	if got := detect(t, "/bin/sh"); got != nil {
		t.Errorf("a program in C: got %+v", got)
	}
}
