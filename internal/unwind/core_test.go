package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind/stackend"
)

// TestCore compares the stack in a core dump of a static arm64 program, such as from
// qemu-user, with elfutils'. FULGUR_UNWIND_CORE lists the program and then the core
// dumps.
func TestCore(t *testing.T) {
	paths := strings.Fields(testenv.Given(t, "FULGUR_UNWIND_CORE"))
	if len(paths) < 2 {
		t.Fatal("FULGUR_UNWIND_CORE lists no core dump")
	}
	program, err := elffile.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	table, err := Compile(program, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths[1:] {
		core, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { core.Close() })
		var regs Registers
		for _, p := range core.Progs {
			if p.Type != elf.PT_NOTE {
				continue
			}
			notes, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			// The first note is "CORE", NT_PRSTATUS; struct elf_prstatus has the
			// registers at offset 112.
			i := bytes.Index(notes, []byte("CORE\x00")) + 8 + 112
			for n := range regs.R {
				regs.R[n] = binary.LittleEndian.Uint64(notes[i+8*n:])
			}
			regs.PC = binary.LittleEndian.Uint64(notes[i+8*maxRegister:])
		}
		w := Walker{
			Machine: program.Machine(),
			Find:    func(uint64) (Code, uint64, bool) { return Code{Table: table}, 0, true },
			Read: func(addr uint64, buf []byte) bool {
				for _, p := range core.Progs {
					if p.Type == elf.PT_LOAD && addr-p.Vaddr < p.Filesz {
						n, _ := p.ReadAt(buf, int64(addr-p.Vaddr))
						return n == len(buf)
					}
				}
				return false
			},
		}
		got, end := w.Walk(regs, nil, 1024)
		out, _ := exec.Command(testenv.Tool(t, "eu-stack"), "-q", "-n", "0", "--core="+path, "-e", paths[0]).Output()
		var want []uint64
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0][0] == '#' {
				pc, _ := strconv.ParseUint(fields[1], 0, 64)
				want = append(want, pc)
			}
		}
		pcs := make([]uint64, len(got))
		for i, f := range got {
			pcs[i] = f.PC
		}
		// Without the program's call frame information, elfutils follows frame pointers,
		// after the link register, which may hold an older return address.
		link := regs.R[arm64RA]
		if !slices.Equal(pcs, want) && len(want) > 1 && want[1] == link {
			want = slices.Delete(want, 1, 2)
			t.Logf("%s: equal except for the link register", path)
		}
		if !slices.Equal(pcs, want) || end != stackend.Complete {
			t.Errorf("%s:\n got %#x (%v)\nwant %#x", path, pcs, end, want)
		}
	}
}
