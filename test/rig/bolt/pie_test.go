package bolt

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
)

// program waits until its standard input ends, and forks. Parent and child loop forever.
var program = []byte{
	0x31, 0xc0, // xor %eax,%eax: read
	0x31, 0xff, // xor %edi,%edi: of standard input
	0x48, 0x89, 0xe6, // mov %rsp,%rsi
	0xba, 0x01, 0x00, 0x00, 0x00, // mov $1,%edx
	0x0f, 0x05, // syscall
	0xb8, 0x39, 0x00, 0x00, 0x00, // mov $57,%eax: fork
	0x0f, 0x05, // syscall
	0xeb, 0xfe, // jmp .
}

// writePIE writes a position-independent executable without an interpreter,
// which the kernel loads at an address of its choice. Its code does not begin
// where its file does.
func writePIE(t *testing.T, dir string) string {
	t.Helper()
	const page, base = 0x1000, 0x20000
	code := bytes.Repeat([]byte{0xc3}, 3*page) // ret, a branch
	copy(code, program)
	f := elftest.File{
		Segments: []elftest.Segment{{Type: elf.PT_LOAD}, {Type: elf.PT_LOAD}},
		Sections: []elftest.Section{
			{Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Content: code},
			elftest.BuildID([]byte("position-independent")),
		},
	}
	// The address of the code does not depend on the headers.
	at := uint64(bytes.Index(f.Bytes(), program))
	f.Entry = base + at
	f.Sections[0].Addr = f.Entry
	f.Segments[0].Prog64 = elf.Prog64{Flags: uint32(elf.PF_R), Filesz: page, Memsz: page, Align: page}
	f.Segments[1].Prog64 = elf.Prog64{
		Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base,
		Filesz: at + uint64(len(code)), Memsz: at + uint64(len(code)), Align: page,
	}
	path := filepath.Join(dir, "pie")
	if err := os.WriteFile(path, f.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
