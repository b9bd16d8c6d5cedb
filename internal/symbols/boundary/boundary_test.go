package boundary

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

const start = 0x1000

// arm returns the bytes of instructions.
func arm(words ...uint32) (code []byte) {
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

func TestCheck(t *testing.T) {
	// jmp over; data that begins like a longer instruction; over: xor %eax, %eax; ret
	around := []byte{0xeb, 0x02, 0x48, 0xb8, 0x31, 0xc0, 0xc3}
	// A jump by a register; nop; ret
	indirect := []byte{0xff, 0xe0, 0x90, 0xc3}
	// jmp *%rax; a table that the first instruction refers to; ret
	table := []byte{0x48, 0x8d, 0x05, 0x02, 0, 0, 0, 0xff, 0xe0, 0x90, 0x90, 0xc3}
	for _, test := range []struct {
		name            string
		machine         elf.Machine
		code            []byte
		entries, labels []uint64 // from the start
		at              uint64
		want            error
	}{
		{"entry", elf.EM_X86_64, around, nil, nil, 0, nil},
		{"inside", elf.EM_X86_64, around, nil, nil, 1, ErrInside},
		{"after data", elf.EM_X86_64, around, nil, nil, 4, nil},
		{"after data, inside", elf.EM_X86_64, around, nil, nil, 5, ErrInside},
		{"data", elf.EM_X86_64, around, nil, nil, 2, errUnreached},
		{"end", elf.EM_X86_64, around, nil, nil, 7, ErrInside},
		{"only by a table", elf.EM_X86_64, indirect, nil, nil, 2, nil},
		{"only by a table, with a label", elf.EM_X86_64, indirect, nil, []uint64{2}, 3, errData},
		{"label of reached code", elf.EM_X86_64, indirect, nil, []uint64{0}, 3, nil},
		{"unknown instruction", elf.EM_X86_64, []byte{0xff, 0xe0, 0x06, 0x90, 0xc3}, nil, nil, 3, errUnknown},
		{"refers to data", elf.EM_X86_64, table, nil, nil, 10, errData},
		{"another entry", elf.EM_X86_64, table, []uint64{9}, nil, 10, nil},
		{"entries overlap", elf.EM_X86_64, []byte{0xb8, 0x90, 0x90, 0x90, 0xc3, 0xc3}, []uint64{1}, nil, 0, errOverlap},
		{"vector instruction, inside", elf.EM_X86_64, []byte{0xc5, 0xfc, 0x58, 0xc1, 0xc3}, nil, nil, 2, ErrInside},
		{"call of an address inside", elf.EM_X86_64, []byte{0xe8, 0x02, 0, 0, 0, 0x48, 0xb8, 0x58, 0xc3}, nil, nil, 8, nil},
		{"data after a call", elf.EM_X86_64, []byte{0xe8, 0x02, 0, 0, 0, 0x48, 0xb8, 0x58, 0xc3}, nil, nil, 5, errUnreached},
		{"arm64", elf.EM_AARCH64, arm(0xd503201f, 0xd65f03c0), nil, nil, 4, nil},
		{"arm64, inside", elf.EM_AARCH64, arm(0xd503201f, 0xd65f03c0), nil, nil, 2, ErrInside},
		{"arm64, literal", elf.EM_AARCH64, arm(0x58000040, 0xd61f0000, 1, 0), nil, nil, 8, errData},
		{"arm64, load-exclusive", elf.EM_AARCH64, arm(0xc85ffc20, 0x91000400, 0xc802fc20, 0x35ffffa2, 0xd65f03c0), nil, nil, 0, errExclusive},
		{"arm64, before a store-exclusive", elf.EM_AARCH64, arm(0xc85ffc20, 0x91000400, 0xc802fc20, 0x35ffffa2, 0xd65f03c0), nil, nil, 8, errExclusive},
		{"arm64, after it", elf.EM_AARCH64, arm(0xc85ffc20, 0x91000400, 0xc802fc20, 0x35ffffa2, 0xd65f03c0), nil, nil, 12, nil},
	} {
		f := Function{Machine: test.machine, Code: test.code, Start: start}
		for _, at := range test.entries {
			f.Entries = append(f.Entries, start+at)
		}
		for _, at := range test.labels {
			f.Labels = append(f.Labels, start+at)
		}
		if err := f.Check(test.at); !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
}

// FuzzCheck checks arbitrary code. Without jumps into the middle of instructions, each accepted
// instruction begins where no other accepted one is.
func FuzzCheck(f *testing.F) {
	f.Add(false, []byte{0xeb, 0x02, 0x48, 0xb8, 0x31, 0xc0, 0xc3}, uint8(3), uint8(4))
	f.Add(true, arm(0xc85ffc20, 0x91000400, 0xc802fc20, 0x35ffffa2, 0xd65f03c0), uint8(4), uint8(8))
	f.Fuzz(func(t *testing.T, isARM bool, code []byte, entry, label uint8) {
		if len(code) > 64 {
			return
		}
		fn := Function{
			Machine: elf.EM_X86_64, Code: code, Start: start,
			Entries: []uint64{start + uint64(entry)}, Labels: []uint64{start + uint64(label)},
		}
		if isARM {
			fn.Machine = elf.EM_AARCH64
		}
		for at := range uint64(len(code) + 8) {
			err := fn.Check(at)
			switch {
			case err != nil:
			case at >= uint64(len(code)):
				t.Fatalf("accepted +%#x, beyond the end", at)
			case isARM && at%4 != uint64(entry)%4 && at%4 != 0:
				t.Fatalf("accepted +%#x", at)
			}
		}
	})
}

// TestAgainstObjdump checks the offsets of functions in real files. No instruction begins at an
// accepted offset except where objdump shows one.
func TestAgainstObjdump(t *testing.T) {
	files := []string{testenv.Library("libc.so.6")}
	every := 8
	if testenv.IsLong() {
		// libcrypto has much assembly, and go is a Go program.
		files, every = append(files, testenv.Library("libcrypto.so.3"), testenv.Tool(t, "go")), 2
	}
	if more := os.Getenv("FULGUR_TEST_FILES"); more != "" {
		files = strings.Fields(more)
	}
	objdump := testenv.Tool(t, "objdump")
	for _, path := range files {
		t.Run(path, func(t *testing.T) {
			out, err := testenv.Command(t, objdump, "-d", "-w", "--no-show-raw-insn", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			begins := map[uint64]bool{}
			for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
				at, rest, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":\t")
				if n, err := strconv.ParseUint(at, 16, 64); ok && err == nil && !strings.Contains(rest, "(bad)") {
					begins[n] = true
				}
			}
			f, err := elffile.Open(testenv.File(t, path))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			compare(t, f, begins, every)
		})
	}
}

// maxOffsets is the number of offsets to check in a function.
const maxOffsets = 200

func compare(t *testing.T, f *elffile.File, begins map[uint64]bool, every int) {
	sections, err := f.Sections()
	if err != nil {
		t.Fatal(err)
	}
	var fn []elffile.Symbol
	for _, s := range sections {
		if s.Type != elf.SHT_SYMTAB && s.Type != elf.SHT_DYNSYM {
			continue
		}
		err := f.EachSymbol(s, func(sym elffile.Symbol) bool {
			if sym.Section != elf.SHN_UNDEF && sym.Type == elf.STT_FUNC && sym.Size > 0 && sym.Size < 1<<16 {
				fn = append(fn, sym)
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	places, accepted, doubtful := 0, 0, map[error]int{}
	for i := 0; i < len(fn); i += max(every, len(fn)/1000) {
		sym := fn[i]
		offset, ok := f.Offset(sym.Value)
		if !ok {
			continue
		}
		code, err := f.Bytes(int64(offset), sym.Size, "function")
		if err != nil {
			t.Fatal(err)
		}
		in := Function{Machine: f.Machine(), Code: code, Start: sym.Value}
		for _, other := range fn {
			if other.Value-sym.Value < sym.Size {
				in.Entries = append(in.Entries, other.Value)
			}
		}
		for at := uint64(0); at < sym.Size; at += sym.Size/maxOffsets | 1 {
			err := in.Check(at)
			begin := begins[sym.Value+at]
			if err == nil && !begin {
				t.Errorf("function %#x: accepted +%#x, where objdump has no instruction", sym.Value, at)
			}
			if !begin {
				continue
			}
			places++
			switch {
			case err == nil:
				accepted++
			case errors.Is(err, ErrInside):
				t.Errorf("function %#x: refused +%#x, where objdump has an instruction: %v", sym.Value, at, err)
			default:
				doubtful[err]++
			}
		}
	}
	if accepted == 0 {
		t.Fatal("accepted no place")
	}
	t.Logf("accepted %d of %d places; others: %v", accepted, places, doubtful)
}
