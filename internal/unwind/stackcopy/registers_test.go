package stackcopy

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/unwind"
)

func words(list []uint64) (b []byte) {
	for _, v := range list {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b
}

// All registers of perf's mask arrive at their DWARF numbers.
func TestRegisters(t *testing.T) {
	// The order of the kernel's enums, by DWARF number; 16 and 32 are the program counters.
	amd64 := []int{0, 3, 2, 1, 4, 5, 6, 7, 16, -1, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15}
	var arm64 []int
	for reg := range 33 {
		arm64 = append(arm64, reg)
	}
	for _, test := range []struct {
		machine elf.Machine
		mask    uint64
		pc      int
		order   []int
	}{{elf.EM_X86_64, 0xff0fff, 16, amd64}, {elf.EM_AARCH64, 1<<33 - 1, 32, arm64}} {
		values := make([]uint64, len(test.order))
		var want unwind.Registers
		for i, reg := range test.order {
			values[i] = uint64(1000 + i)
			switch {
			case reg == test.pc:
				want.PC = values[i]
			case reg >= 0:
				want.R[reg] = values[i]
			}
		}
		got, ok := registers(perfevent.UserState{Mask: test.mask, Regs: words(values)}, test.machine)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%v: got %v; registers (-want +got):\n%s", test.machine, ok, diff)
		}
	}
}
