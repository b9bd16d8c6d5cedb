package ruby

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"fulgur/internal/runtimes"
	"fulgur/internal/testenv"
)

// The thread-local variable and the interpreter's function are found without their symbols,
// for each model of thread-local storage.
func TestFind(t *testing.T) {
	onAMD64(t)
	for name, test := range map[string]struct {
		flags   []string
		context uint8
	}{
		"library":  {[]string{"-shared", "-fPIC"}, runtimes.LocalByModule},
		"at start": {[]string{"-shared", "-fPIC", "-ftls-model=initial-exec"}, runtimes.LocalByOffsetAt},
		"program":  {[]string{"-pie", "-fPIE", "-rdynamic", "-Wl,--unresolved-symbols=ignore-all", "-nostartfiles"}, runtimes.LocalByOffset},
	} {
		t.Run(name, func(t *testing.T) {
			path := testenv.Compile(t, "ruby", "gcc", append([]string{"-O2", "-fcf-protection=none", "testdata/ruby.c"}, test.flags...)...)
			b, err := Runtime{}.Detect(open(t, path))
			if err != nil || b == nil || b.Unknown != "" {
				t.Fatalf("got %+v, %v", b, err)
			}
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			symbols, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			var offset, size uint64
			for _, s := range symbols {
				switch s.Name {
				case "vm_exec":
					if b.Entry.Ruby.Interpreter.Start != s.Value || b.Entry.Ruby.Interpreter.End != s.Value+s.Size {
						t.Errorf("got function %#x-%#x, want %#x-%#x", b.Entry.Ruby.Interpreter.Start, b.Entry.Ruby.Interpreter.End, s.Value, s.Value+s.Size)
					}
				case "context":
					offset = s.Value
				}
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_TLS {
					size = (p.Memsz + p.Align - 1) &^ (p.Align - 1)
				}
			}
			if b.Entry.Ruby.Context.Model != test.context {
				t.Fatalf("got context %d, want %d", b.Entry.Ruby.Context.Model, test.context)
			}
			if test.context == runtimes.LocalByOffset {
				if got := b.Entry.Ruby.Context.At; got != offset-size {
					t.Errorf("got offset %#x, want %#x", got, offset-size)
				}
				return
			}
			relocation, addend := relocationAt(t, f, b.Entry.Ruby.Context.At)
			switch test.context {
			case runtimes.LocalByModule:
				// The word after the module's number has the offset.
				s := f.Section(".got")
				var word [8]byte
				if _, err := s.ReadAt(word[:], int64(b.Entry.Ruby.Context.At+8-s.Addr)); err != nil {
					t.Fatal(err)
				}
				if got := binary.LittleEndian.Uint64(word[:]); relocation != elf.R_X86_64_DTPMOD64 || got != offset {
					t.Errorf("got %v and offset %#x at %#x, want %#x", relocation, got, b.Entry.Ruby.Context.At, offset)
				}
			case runtimes.LocalByOffsetAt:
				if relocation != elf.R_X86_64_TPOFF64 || addend != offset {
					t.Errorf("got %v of %#x at %#x, want of %#x", relocation, addend, b.Entry.Ruby.Context.At, offset)
				}
			}
		})
	}
}

// relocationAt returns the dynamic relocation at an address, and its addend.
func relocationAt(t *testing.T, f *elf.File, addr uint64) (elf.R_X86_64, uint64) {
	t.Helper()
	b, err := f.Section(".rela.dyn").Data()
	if err != nil {
		t.Fatal(err)
	}
	for ; len(b) >= 24; b = b[24:] {
		if binary.LittleEndian.Uint64(b) == addr {
			return elf.R_X86_64(binary.LittleEndian.Uint32(b[8:])), binary.LittleEndian.Uint64(b[16:])
		}
	}
	t.Fatalf("no relocation at %#x", addr)
	return 0, 0
}

// The summary names a file with another version, or without the functions.
func TestUnknown(t *testing.T) {
	onAMD64(t)
	for version, want := range map[string]string{
		"3.0.7": "ruby before 3.1: its functions are not shown",
		"2.7.8": "ruby before 3.1: its functions are not shown",
		"4.0.1": "ruby 4.0: not supported yet, its functions are not shown",
		"3.3.1": "ruby 3.3.1: its layout is not known, its functions are not shown",
	} {
		source := filepath.Join(t.TempDir(), "version.c")
		if err := os.WriteFile(source, []byte(`const char ruby_version[] = "`+version+`";`), 0o600); err != nil {
			t.Fatal(err)
		}
		path := testenv.Compile(t, "version", "gcc", "-shared", source)
		b, err := Runtime{}.Detect(open(t, path))
		if err != nil || b == nil || b.Unknown != want {
			t.Errorf("%s: got %+v, %v, want %q", version, b, err, want)
		}
	}
}
