package gocode

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"fulgur/internal/symbols/returns"
)

// The probe is after the check of the stack, at the next instruction.
func TestAfterStackCheck(t *testing.T) {
	for _, test := range []struct {
		name    string
		machine elf.Machine
		code    []byte
		want    uint64
	}{
		{"small frame", elf.EM_X86_64, []byte{0x49, 0x3b, 0x66, 0x10, 0x76, 0x20, 0x55}, 6},
		{"far jump", elf.EM_X86_64, []byte{0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 1, 2, 3, 4, 0x55}, 10},
		{"large frame", elf.EM_X86_64, []byte{0x4c, 0x8d, 0x64, 0x24, 0x80, 0x4d, 0x3b, 0x66, 0x10, 0x76, 1, 0x55}, 11},
		{"larger frame", elf.EM_X86_64, []byte{0x4c, 0x8d, 0xa4, 0x24, 0, 1, 2, 3, 0x4d, 0x3b, 0x66, 0x10, 0x0f, 0x86, 1, 2, 3, 4, 0x55}, 18},
		{"frame above 4 KiB", elf.EM_X86_64, []byte{0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0xe8, 0x0f, 0, 0, 0x0f, 0x82, 0x91, 0, 0, 0, 0x4d, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0x87, 0, 0, 0, 0x55}, 26},
		{"frame above 4 KiB, near jumps", elf.EM_X86_64, []byte{0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0xe8, 0x0f, 0, 0, 0x72, 0x41, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0x37, 0x55}, 18},
		{"frame above 4 KiB, no subtraction", elf.EM_X86_64, []byte{0x49, 0x89, 0xe4, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0x37, 0x55}, 0},
		{"no check", elf.EM_X86_64, []byte{0x55, 0x48, 0x89, 0xe5}, 0},
		{"cut", elf.EM_X86_64, []byte{0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 1}, 0},
		{"other jump", elf.EM_X86_64, []byte{0x49, 0x3b, 0x66, 0x10, 0x77, 0x20}, 0},
		{"arm64", elf.EM_AARCH64, []byte{0x90, 0x0b, 0x40, 0xf9, 0xff, 0x63, 0x30, 0xeb, 0x29, 0x01, 0x00, 0x54, 0xfe, 0x0f, 0x1e, 0xf8}, 12},
		{"arm64, large frame", elf.EM_AARCH64, []byte{0x90, 0x0b, 0x40, 0xf9, 0xf1, 0x43, 0x02, 0xd1, 0x3f, 0x02, 0x10, 0xeb, 0x29, 0x01, 0x00, 0x54, 1, 2, 3, 4}, 16},
		{"arm64, frame above 4 KiB", elf.EM_AARCH64, arm(0xf9400b90, 0xf13fc3f1, 0x540004e3, 0xeb10023f, 0x540004a9, 0xd2820e1b), 20},
		{"arm64, frame above 16 KiB", elf.EM_AARCH64, arm(0xf9400b90, 0xd287fe1b, 0xeb3b63f1, 0x540004e3, 0xeb10023f, 0x540004a9, 0xd2880e1b), 24},
		{"arm64, no branch for a wrap", elf.EM_AARCH64, arm(0xf9400b90, 0xf13fc3f1, 0xeb10023f, 0x540004a9), 0},
		{"arm64, other condition", elf.EM_AARCH64, []byte{0x90, 0x0b, 0x40, 0xf9, 0xff, 0x63, 0x30, 0xeb, 0x28, 0x01, 0x00, 0x54}, 0},
		{"arm64, cut", elf.EM_AARCH64, []byte{0x90, 0x0b, 0x40, 0xf9, 0xf1, 0x43, 0x02, 0xd1, 0x3f, 0x02, 0x10, 0xeb}, 0},
	} {
		if got := AfterStackCheck(test.machine, test.code); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

// arm returns the bytes of instructions.
func arm(words ...uint32) (code []byte) {
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

func TestFind(t *testing.T) {
	checked := []byte{0x49, 0x3b, 0x66, 0x10, 0x76, 0x08} // CMPQ SP, 16(R14); JLS 14
	x86 := func(rest ...byte) []byte { return append(slices.Clone(checked), rest...) }
	for _, test := range []struct {
		name    string
		machine elf.Machine
		code    []byte
		want    Calls
		err     error
	}{
		{"two returns", elf.EM_X86_64, x86(0x55, 0x74, 0x02, 0x5d, 0xc3, 0x5d, 0xc3, 0x90, 0xe8, 0, 0, 0, 0, 0xeb, 0xeb, 0xcc), Calls{6, []uint64{10, 12}}, nil},
		{"no check", elf.EM_X86_64, []byte{0x90, 0xc3, 0xcc, 0xcc}, Calls{0, []uint64{1}}, nil},
		{"loop to its start", elf.EM_X86_64, []byte{0x90, 0xff, 0xc8, 0x75, 0xfb, 0xc3}, Calls{}, returns.ErrEntry},
		{"loop after the check", elf.EM_X86_64, x86(0xff, 0xc8, 0x75, 0xfc, 0xc3, 0x90, 0x90, 0x90, 0x90), Calls{}, returns.ErrEntry},
		{"tail call", elf.EM_X86_64, []byte{0x74, 0x01, 0xc3, 0xe9, 0, 1, 0, 0}, Calls{}, returns.ErrElsewhere},
		{"jump before its start", elf.EM_X86_64, []byte{0xc3, 0xeb, 0xf0}, Calls{}, returns.ErrElsewhere},
		{"indirect tail call", elf.EM_X86_64, []byte{0x74, 0x01, 0xc3, 0xff, 0xe1}, Calls{}, returns.ErrIndirect},
		{"table of a switch", elf.EM_X86_64, []byte{0xff, 0x24, 0xc8, 0xc3}, Calls{0, []uint64{3}}, nil},
		{"unknown instruction", elf.EM_X86_64, []byte{0x06, 0xc3}, Calls{}, returns.ErrUnknown},
		{"cut instruction", elf.EM_X86_64, []byte{0xc3, 0xe8, 0}, Calls{}, returns.ErrUnknown},
		{"return that pops", elf.EM_X86_64, []byte{0xc2, 8, 0}, Calls{}, returns.ErrUnknown},
		{"endless", elf.EM_X86_64, []byte{0x90, 0xeb, 0xfe}, Calls{}, returns.ErrNone},
		{"empty", elf.EM_X86_64, nil, Calls{}, returns.ErrNone},
		{"other machine", elf.EM_RISCV, []byte{1, 2}, Calls{}, nil},

		{"arm64", elf.EM_AARCH64, arm(0xf9400b90, 0xeb3063ff, 0x54000089, 0xb4000040, retARM, retARM, 0x94000000, 0x17fffff9, 0), Calls{12, []uint64{16, 20}}, nil},
		{"arm64, table of a switch", elf.EM_AARCH64, arm(tableARM, 0xd63f0340, retARM), Calls{0, []uint64{8}}, nil},
		{"arm64, tail call", elf.EM_AARCH64, arm(0x36000040, retARM, 0x14000100), Calls{}, returns.ErrElsewhere},
		{"arm64, indirect tail call", elf.EM_AARCH64, arm(retARM, 0xd61f0340), Calls{}, returns.ErrIndirect},
		{"arm64, loop to its start", elf.EM_AARCH64, arm(0xd503201f, 0x35ffffe0, retARM), Calls{}, returns.ErrEntry},
		{"arm64, data", elf.EM_AARCH64, arm(0x58000040, retARM, 0xd65f03c0, 0), Calls{}, returns.ErrData},
		{"arm64, other return", elf.EM_AARCH64, arm(0xd65f0bff), Calls{}, returns.ErrUnknown},
		{"arm64, cut", elf.EM_AARCH64, []byte{0xc0, 0x03}, Calls{}, returns.ErrUnknown},
	} {
		got, err := Find(test.machine, test.code)
		if test.machine == elf.EM_RISCV && err != nil {
			continue
		}
		if got.Entry != test.want.Entry || !slices.Equal(got.Returns, test.want.Returns) || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
			t.Errorf("%s: got %+v, %v, want %+v, %v", test.name, got, err, test.want, test.err)
		}
	}
}

// No code makes it fail or find places beyond the end.
func FuzzFind(f *testing.F) {
	f.Add(true, []byte{0x49, 0x3b, 0x66, 0x10, 0x76, 0x01, 0xc3})
	f.Add(false, arm(0xf9400b90, 0xeb3063ff, 0x54000089, retARM))
	f.Fuzz(func(t *testing.T, isX86 bool, code []byte) {
		machine := elf.EM_AARCH64
		if isX86 {
			machine = elf.EM_X86_64
		}
		c, err := Find(machine, code)
		if err != nil {
			return
		}
		for _, at := range append(c.Returns, c.Entry) {
			if at >= uint64(len(code)) {
				t.Errorf("place %d of %d bytes", at, len(code))
			}
		}
	})
}
