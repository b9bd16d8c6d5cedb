package rseq

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

// TestRead reads the sequences of programs and libraries whose descriptors are relocated in
// different ways. Symbols at the bounds of the sequences say where breakpoints must not be.
func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, compiler, linker, flags string
	}{
		{"fixed", "gcc", "", "-no-pie"},
		{"position-independent", "gcc", "", "-pie"},
		{"library", "gcc", "", "-shared -fPIC"},
		{"static", "gcc", "", "-static-pie"},
		{"compact relocations", "gcc", "", "-pie -Wl,-z,pack-relative-relocs"},
		{"lld", "gcc", "ld.lld", "-pie -fuse-ld=lld"},
		{"lld, compact relocations", "gcc", "ld.lld", "-pie -fuse-ld=lld -Wl,--pack-dyn-relocs=relr"},
		{"arm64", "aarch64-linux-gnu-gcc", "", "-pie"},
		{"arm64, fixed", "aarch64-linux-gnu-gcc", "", "-no-pie"},
		{"arm64, library", "aarch64-linux-gnu-gcc", "", "-shared -fPIC"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.linker != "" {
				testenv.Tool(t, test.linker)
			}
			path := filepath.Join(t.TempDir(), "sequences")
			args := append(strings.Fields(test.flags), "-o", path, "testdata/sequences.c")
			if out, err := testenv.Command(t, testenv.Tool(t, test.compiler), args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			check(t, path)
		})
	}
}

func readFile(t *testing.T, path string) *Sequences {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	s, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, path string) {
	symbols := map[string]uint64{}
	for _, s := range testenv.Symbols(t, path) {
		symbols[s.Name] = s.Value
	}
	s := readFile(t, path)
	for _, name := range []string{"first", "second", "old", "elsewhere"} {
		begin, end, abort := symbols[name+"_begin"], symbols[name+"_end"], symbols[name+"_abort"]
		if begin == 0 || end <= begin || abort < end {
			t.Fatalf("%s: no symbols", name)
		}
		for at := begin - s.breakpoint; at <= abort; at += s.breakpoint {
			var want error
			switch {
			case at >= begin && at < end:
				want = ErrSequence
			case at >= abort-signatureSize && at < abort:
				want = ErrSignature
			}
			if got := s.Check(at); !errors.Is(got, want) || want == nil && got != nil {
				t.Errorf("%s, %d bytes before its end: got %v, want %v", name, int64(end-at), got, want)
			}
		}
	}
}

// Addresses of the sections in synthetic files.
const textAddr, textSize, dataAddr, arrayAddr = 0x1000, 0x1000, 0x10000, 0x300000

// made returns a synthetic file with sections for descriptors and pointers, and relocations.
func made(t testing.TB, machine elf.Machine, descriptors, pointers, relas []byte) *elffile.File {
	t.Helper()
	b := elftest.File{
		Machine: machine,
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Section: 1, Prog64: elf.Prog64{Flags: uint32(elf.PF_R | elf.PF_X)}},
			{Type: elf.PT_LOAD, Section: 2, Prog64: elf.Prog64{Flags: uint32(elf.PF_R | elf.PF_W)}},
		},
		Sections: []elftest.Section{
			{Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: textAddr, Content: make([]byte, textSize)},
			{Name: "__rseq_cs", Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: dataAddr, Content: descriptors},
			{Name: "__rseq_cs_ptr_array", Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: arrayAddr, Content: pointers},
			{Name: ".rela.dyn", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Content: relas},
		},
	}.Bytes()
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)), "made-up")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// descriptor returns a struct rseq_cs.
func descriptor(version uint32, start, length, abort uint64) []byte {
	return elftest.Struct(struct {
		Version, Flags       uint32
		Start, Length, Abort uint64
	}{version, 0, start, length, abort})
}

// TestDoubt refuses files whose sequences are in doubt.
func TestDoubt(t *testing.T) {
	good := descriptor(0, textAddr+16, 8, textAddr+64)
	rela := func(offset uint64, typ elf.R_X86_64) []byte {
		return elftest.Struct(elf.Rela64{Off: offset, Info: uint64(typ), Addend: textAddr})
	}
	for _, test := range []struct {
		name                         string
		descriptors, pointers, relas []byte
		want                         string // in the error
	}{
		{"good", good, nil, nil, ""},
		{"padding", append(make([]byte, descriptorSize), good...), make([]byte, pointerSize), nil, ""},
		{"relocation of something else", good, nil, rela(dataAddr+descriptorSize, elf.R_X86_64_64), ""},
		{"no whole descriptor", good[:31], nil, nil, "not a multiple of 32"},
		{"new version", descriptor(1, textAddr+16, 8, textAddr+64), nil, nil, "malformed"},
		{"not relocated", descriptor(0, 0, 8, 0), nil, nil, "malformed"},
		{"no code", descriptor(0, dataAddr, 8, textAddr+64), nil, nil, "malformed"},
		{"wraps around", descriptor(0, textAddr, 1<<64-8, textAddr+64), nil, nil, "malformed"},
		{"unknown relocation", good, nil, rela(dataAddr+startAt, elf.R_X86_64_64), "unknown relocation"},
		{"partial relocation", good, nil, rela(dataAddr+descriptorSize-4, elf.R_X86_64_RELATIVE), "unknown relocation"},
		{"pointer to nothing", good, []byte{1, 0, 0, 0, 0, 0, 0, 0}, nil, "no descriptor"},
		{"too many", make([]byte, (maxDescriptors+1)*descriptorSize), nil, nil, "more than 65536"},
	} {
		s, err := Read(made(t, elf.EM_X86_64, test.descriptors, test.pointers, test.relas))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: got error %v", test.name, err)
		case test.want == "" && (!errors.Is(s.Check(textAddr+16), ErrSequence) || !errors.Is(s.Check(textAddr+60), ErrSignature)):
			t.Errorf("%s: got %+v", test.name, s)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got error %v, want one with %q", test.name, err, test.want)
		}
	}
}

// TestNoSections finds nothing in a file without section headers, in which no symbol is found either.
func TestNoSections(t *testing.T) {
	f := made(t, elf.EM_X86_64, descriptor(0, textAddr+16, 8, textAddr+64), nil, nil)
	b, err := f.Bytes(0, uint64(f.Size()), "file")
	if err != nil {
		t.Fatal(err)
	}
	clear(b[40:48]) // e_shoff
	if f, err = elffile.New(bytes.NewReader(b), int64(len(b)), "bare"); err != nil {
		t.Fatal(err)
	}
	s, err := Read(f)
	if err != nil || s.Check(textAddr+16) != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}

// FuzzRead reads arbitrary descriptors with arbitrary relocations. Each address in a sequence or a
// signature is refused, and no other.
func FuzzRead(f *testing.F) {
	good := descriptor(0, textAddr+16, 8, textAddr+64)
	relas := elftest.Struct(elf.Rela64{Off: dataAddr + startAt, Info: uint64(elf.R_X86_64_RELATIVE), Addend: textAddr + 32})
	f.Add(false, good, []byte(nil), []byte(nil))
	f.Add(false, append(good, descriptor(0, textAddr+20, 100, textAddr+60)...), binary.LittleEndian.AppendUint64(nil, dataAddr+8), relas)
	f.Add(true, good, binary.LittleEndian.AppendUint64(nil, dataAddr), relas)
	f.Fuzz(func(t *testing.T, arm bool, descriptors, pointers, relas []byte) {
		machine, relative, size := elf.EM_X86_64, uint32(elf.R_X86_64_RELATIVE), uint64(1)
		if arm {
			machine, relative, size = elf.EM_AARCH64, uint32(elf.R_AARCH64_RELATIVE), 4
		}
		s, err := Read(made(t, machine, descriptors, pointers, relas))
		if err != nil || len(pointers) > 0 {
			return
		}
		// The same, one by one.
		loaded := bytes.Clone(descriptors)
		for b := relas; len(b) >= 24; b = b[24:] {
			at := binary.LittleEndian.Uint64(b) - dataAddr
			if at < uint64(len(loaded)) {
				if binary.LittleEndian.Uint32(b[8:]) != relative {
					t.Fatal("read an unknown relocation")
				}
				copy(loaded[at:], b[16:24])
			}
		}
		var want [textSize + 16]error
		mark := func(from, to uint64, err error) {
			for at := from; at < to && at < textAddr+uint64(len(want)); at++ {
				if at >= textAddr && !errors.Is(want[at-textAddr], ErrSequence) {
					want[at-textAddr] = err
				}
			}
		}
		for b := loaded; len(b) > 0; b = b[descriptorSize:] {
			if bytes.Equal(b[:descriptorSize], make([]byte, descriptorSize)) {
				continue
			}
			start, length, abort := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
			mark(start, start+length, ErrSequence)
			mark(abort-4-(size-1), abort, ErrSignature)
		}
		for i := range want {
			if got := s.Check(textAddr + uint64(i)); !errors.Is(got, want[i]) {
				t.Fatalf("%#x: got %v, want %v", textAddr+i, got, want[i])
			}
		}
	})
}
