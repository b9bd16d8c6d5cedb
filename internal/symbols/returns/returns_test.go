package returns

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// arm returns the bytes of instructions.
func arm(words ...uint32) (code []byte) {
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

func TestScan(t *testing.T) {
	const start = 0x1000
	for _, test := range []struct {
		name    string
		machine elf.Machine
		code    []byte
		returns []uint64 // from the start
		jumps   []uint64
		err     error
	}{
		{"two returns", elf.EM_X86_64, []byte{0x55, 0x74, 0x02, 0x5d, 0xc3, 0x5d, 0xf3, 0xc3}, []uint64{4, 6}, nil, nil},
		{"jump to another part", elf.EM_X86_64, []byte{0x74, 0x01, 0xc3, 0xe9, 0, 1, 0, 0}, []uint64{2}, []uint64{0x108}, nil},
		{"jump to its entry", elf.EM_X86_64, []byte{0x90, 0xff, 0xc8, 0x75, 0xfb, 0xc3}, nil, nil, ErrEntry},
		{"indirect tail call", elf.EM_X86_64, []byte{0xff, 0xe0, 0xc3}, nil, nil, ErrIndirect},
		{"virtual tail call", elf.EM_X86_64, []byte{0xff, 0x60, 0x18, 0xc3}, nil, nil, ErrIndirect},
		{"jump through the linkage table", elf.EM_X86_64, []byte{0xff, 0x25, 0, 0, 0, 0, 0xc3}, nil, nil, ErrIndirect},
		{"table of addresses", elf.EM_X86_64, []byte{0xff, 0x24, 0xc5, 0, 0, 0, 0, 0xc3}, []uint64{7}, nil, nil},
		{"table of functions", elf.EM_X86_64, []byte{0xff, 0x24, 0xc5, 8, 0, 0, 0, 0xc3}, nil, nil, ErrIndirect},
		{"table of functions, in a register", elf.EM_X86_64, []byte{0xff, 0x24, 0xc2, 0xc3}, nil, nil, ErrIndirect},
		{"table that is not in the file", elf.EM_X86_64, []byte{0xff, 0x24, 0xc5, 16, 0, 0, 0, 0xc3}, nil, nil, ErrIndirect},
		{"offset of a virtual function", elf.EM_X86_64, []byte{0x48, 0x63, 0x48, 0x04, 0x48, 0x01, 0xc1, 0xff, 0xe1, 0xc3}, nil, nil, ErrIndirect},
		{"table, with control-flow protection", elf.EM_X86_64, []byte{0x3e, 0xff, 0xe0, 0xc3}, []uint64{3}, nil, nil},
		{"table of offsets", elf.EM_X86_64, []byte{0x48, 0x63, 0x04, 0x81, 0x48, 0x01, 0xc8, 0xff, 0xe0, 0xc3}, []uint64{9}, nil, nil},
		{"table of offsets, high registers", elf.EM_X86_64, []byte{0x4d, 0x63, 0x04, 0x81, 0x4d, 0x01, 0xc8, 0x41, 0xff, 0xe0, 0xc3}, []uint64{10}, nil, nil},
		{"sum in another register", elf.EM_X86_64, []byte{0x48, 0x63, 0x04, 0x81, 0x48, 0x01, 0xc1, 0xff, 0xe0, 0xc3}, nil, nil, ErrIndirect},
		{"sum without a table", elf.EM_X86_64, []byte{0x48, 0x01, 0xc8, 0xff, 0xe0, 0xc3}, nil, nil, ErrIndirect},
		{"return that pops", elf.EM_X86_64, []byte{0xc2, 8, 0}, nil, nil, ErrUnknown},
		{"unknown instruction", elf.EM_X86_64, []byte{0x06, 0xc3}, nil, nil, ErrUnknown},
		{"cut instruction", elf.EM_X86_64, []byte{0xc3, 0xe8, 0}, nil, nil, ErrUnknown},
		{"goes on after its end", elf.EM_X86_64, []byte{0x74, 0x01, 0xc3, 0x90}, nil, nil, ErrBounds},
		{"ends with a call", elf.EM_X86_64, []byte{0x74, 0x01, 0xc3, 0xe8, 0, 0, 0, 0}, []uint64{2}, nil, nil},
		{"arm64", elf.EM_AARCH64, arm(0x36000040, 0xd65f03c0, 0x14000100), []uint64{4}, []uint64{0x408}, nil},
		{"arm64, table", elf.EM_AARCH64, arm(0x8b20c820, 0xd61f0000, 0xd65f03c0), []uint64{8}, nil, nil},
		{"arm64, indirect tail call", elf.EM_AARCH64, arm(0xf9400001, 0xd61f0020, 0xd65f03c0), nil, nil, ErrIndirect},
		{"arm64, data", elf.EM_AARCH64, arm(0x58000040, 0xd65f03c0), nil, nil, ErrData},
		{"arm64, other return", elf.EM_AARCH64, arm(0xd65f0bff), nil, nil, ErrUnknown},
	} {
		tables := map[uint64]uint64{0: start + 7, 8: 0x10000}
		found, jumps, _, err := scan(test.machine, instruction.DecoderOf(test.machine), test.code, start, start, false, func(address uint64) (uint64, bool) {
			first, ok := tables[address]
			return first, ok
		})
		for i := range found {
			found[i] -= start
		}
		for i := range jumps {
			jumps[i] -= start
		}
		if !errors.Is(err, test.err) || !slices.Equal(found, test.returns) || !slices.Equal(jumps, test.jumps) {
			t.Errorf("%s: got %#x, %#x and %v; want %#x, %#x and %v", test.name, found, jumps, err, test.returns, test.jumps, test.err)
		}
	}
}

// In libraries of C and C++, the returns are where objdump has them.
func TestAgainstObjdump(t *testing.T) {
	objdump := testenv.Tool(t, "objdump")
	for _, name := range []string{"libstdc++.so.6", "libc.so.6"} {
		t.Run(name, func(t *testing.T) {
			path := testenv.Library(name)
			out, err := exec.Command(objdump, "-d", "--no-show-raw-insn", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			isReturn := map[uint64]bool{}
			line := regexp.MustCompile(`^ +([0-9a-f]+):\t(?:repz |bnd )?ret`)
			for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
				if m := line.FindSubmatch(lines.Bytes()); m != nil {
					at, err := strconv.ParseUint(string(m[1]), 16, 64)
					if err != nil {
						t.Fatal(err)
					}
					isReturn[at] = true
				}
			}
			f, err := elffile.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			finder := &Finder{File: f, Follow: func(uint64) bool { return true }}
			functions, found := 0, 0
			reasons := map[error]int{}
			symbols, err := f.Sections()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range symbols {
				if s.Type != elf.SHT_DYNSYM {
					continue
				}
				err := f.EachSymbol(s, func(sym elffile.Symbol) bool {
					if sym.Section == elf.SHN_UNDEF || sym.Type != elf.STT_FUNC || functions == 2000 {
						return true
					}
					functions++
					returns, err := finder.Find(sym.Value)
					if err != nil {
						reasons[err]++
						return true
					}
					found++
					own := 0
					for _, at := range returns {
						if !isReturn[at] {
							t.Errorf("function %#x: got a return at %#x, but objdump has none", sym.Value, at)
						}
						if at-sym.Value < sym.Size {
							own++
						}
					}
					for at := range sym.Size {
						if isReturn[sym.Value+at] {
							own--
						}
					}
					if own < 0 {
						t.Errorf("function %#x: got %#x, which lacks %d of objdump's returns", sym.Value, returns, -own)
					}
					return true
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d of %d functions; others: %v", found, functions, reasons)
			if found < functions/2 {
				t.Errorf("found the returns of %d of %d functions, want at least half: %v", found, functions, reasons)
			}
		})
	}
}

// Returns and the targets of jumps are what the decoder finds at their places.
func FuzzScan(f *testing.F) {
	f.Add([]byte{0x48, 0x63, 0x04, 0x81, 0x48, 0x01, 0xc8, 0xff, 0xe0, 0xc3}, true)
	f.Add(arm(0x8b20c820, 0xd61f0000, 0xd65f03c0), false)
	f.Fuzz(func(t *testing.T, code []byte, x86 bool) {
		const start = 1 << 20
		machine := elf.EM_AARCH64
		if x86 {
			machine = elf.EM_X86_64
		}
		decode := instruction.DecoderOf(machine)
		found, jumps, _, err := scan(machine, decode, code, start, start, false, func(uint64) (uint64, bool) { return start, true })
		if err != nil && found != nil {
			t.Error("returns in spite of an error")
		}
		if !slices.IsSorted(found) {
			t.Errorf("not in order: %#x", found)
		}
		for _, at := range found {
			if in, ok := decode(code[at-start:], at); !ok || in.Kind != instruction.Return {
				t.Errorf("no return at %#x", at)
			}
		}
		for _, target := range jumps {
			if target >= start && target < start+uint64(len(code)) {
				t.Errorf("jump to %#x is not out of the code", target)
			}
		}
	})
}
