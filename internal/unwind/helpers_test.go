package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
)

// codeAddr is the start of the code in synthetic files.
const codeAddr = 0x401000

// frames builds call frame information.
type frames struct {
	b     []byte
	eh    bool
	wide  bool // 64-bit DWARF
	cieAt int
}

// entry appends an entry. id is the CIE's ID, or the pointer to the CIE.
func (f *frames) entry(id uint64, idSize int, body []byte) {
	for (len(body)+idSize)%8 != 4 {
		body = append(body, cfaNop)
	}
	n := uint64(len(body) + idSize)
	if f.wide {
		f.b = binary.LittleEndian.AppendUint32(f.b, 0xffffffff)
		f.b = binary.LittleEndian.AppendUint64(f.b, n)
	} else {
		f.b = binary.LittleEndian.AppendUint32(f.b, uint32(n))
	}
	f.b = binary.LittleEndian.AppendUint64(f.b, id)[:len(f.b)+idSize]
	f.b = append(f.b, body...)
}

func (f *frames) idSize() int {
	if f.wide && !f.eh {
		return 8
	}
	return 4
}

// cie appends a CIE with absolute 8-byte addresses. FDEs that follow belong to it.
func (f *frames) cie(m elf.Machine, augmentation string, program ...byte) {
	f.cieAt = len(f.b)
	id := uint64(1<<64 - 1)
	if f.eh {
		id = 0
	}
	body := append([]byte{1}, augmentation...)
	if m == elf.EM_AARCH64 {
		body = append(body, 0, 4, 0x78, arm64RA)
	} else {
		body = append(body, 0, 1, 0x78, amd64RA)
	}
	if augmentation != "" {
		body = append(body, 0)
	}
	f.entry(id, f.idSize(), append(body, program...))
}

// fde appends an FDE. Its CIE has no augmentation, or one without data.
func (f *frames) fde(start, size uint64, augmented bool, program ...byte) {
	pointer := uint64(f.cieAt)
	if f.eh {
		lengthSize := 4
		if f.wide {
			lengthSize = 12
		}
		pointer = uint64(len(f.b) + lengthSize - f.cieAt)
	}
	body := binary.LittleEndian.AppendUint64(nil, start)
	body = binary.LittleEndian.AppendUint64(body, size)
	if augmented {
		body = append(body, 0)
	}
	f.entry(pointer, f.idSize(), append(body, program...))
}

// defaultCIE returns the usual initial instructions for the machine.
func defaultCIE(m elf.Machine) []byte {
	if m == elf.EM_AARCH64 {
		return []byte{cfaDefCFA, arm64SP, 0}
	}
	return []byte{cfaDefCFA, amd64SP, 8, cfaOffset | amd64RA, 1}
}

// madeUp returns a file with 64 KiB of code and the given sections.
func madeUp(m elf.Machine, code []byte, sections ...elftest.Section) []byte {
	text := make([]byte, 64<<10)
	copy(text, code)
	return madeUpOf(m, text, sections...)
}

// madeUpOf returns a file with the given code and sections.
func madeUpOf(m elf.Machine, text []byte, sections ...elftest.Section) []byte {
	return elftest.File{
		Machine: m,
		Segments: []elftest.Segment{{
			Type: elf.PT_LOAD, Section: 1,
			Prog64: elf.Prog64{Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: codeAddr, Align: 4096},
		}},
		Sections: append([]elftest.Section{{
			Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: codeAddr, Content: text,
		}}, sections...),
	}.Bytes()
}

// goBuildinfo identifies Go programs.
var goBuildinfo = elftest.Section{Name: ".go.buildinfo", Content: make([]byte, 32)}

// compileBytes compiles a file in memory.
func compileBytes(t testing.TB, b []byte, opt Options) (*Table, error) {
	t.Helper()
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)), "made-up")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Compile(f, opt)
}

func elffileOf(t testing.TB, b []byte) (*elffile.File, error) {
	t.Helper()
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)), "made-up")
	if err == nil {
		t.Cleanup(func() { f.Close() })
	}
	return f, err
}

// codeRulesOf returns the rules of the first bytes of code, whose functions have these addresses.
func codeRulesOf(t *testing.T, m elf.Machine, code []byte, size uint64, known func(c *codeRules), functions ...uint64) (rules []string) {
	t.Helper()
	f, err := elffileOf(t, madeUp(m, code))
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{file: f, arch: archOf(m), code: newCodeRanges(f)}
	c := newCodeRules(b)
	for _, addr := range functions {
		c.addSure(addr)
	}
	if known != nil {
		known(c)
	}
	c.run()
	c.runAgain()
	c.finish()
	b.table().Each(func(addr uint64, r Rule) bool {
		if addr-codeAddr < size && (len(rules) > 0 || r != Rule{}) {
			rules = append(rules, fmt.Sprintf("%#x %v", addr-codeAddr, r))
		}
		return true
	})
	return rules
}
