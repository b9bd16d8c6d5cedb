package symbolize

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"fulgur/internal/linux/procfs"
)

// OpenVDSO returns the vDSO of this process. It is the same in every 64-bit process of
// the machine: the kernel maps one image, at a different address in each process.
func OpenVDSO(opts Options) (*ELF, error) {
	image, err := readVDSO()
	if err != nil {
		return nil, fmt.Errorf("reading the vdso: %w", err)
	}
	return OpenELF(bytes.NewReader(image), int64(len(image)), "[vdso]", opts)
}

// readVDSO copies the vDSO from this process's memory.
func readVDSO() ([]byte, error) {
	const maxVDSO = 1 << 20
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	var start, end uint64
	if err := eachLine(maps, func(line []byte) bool {
		if !bytes.HasSuffix(line, []byte(" [vdso]")) {
			return true
		}
		low, high, _ := bytes.Cut(line, []byte("-"))
		start, _, _ = cutHex(append(bytes.Clone(low), ' '))
		end, _, _ = cutHex(high)
		return false
	}); err != nil {
		return nil, err
	}
	if start >= end || end-start > maxVDSO {
		return nil, errors.New("none is mapped")
	}
	mem, err := procfs.OwnMemory()
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, end-start)
	_, err = mem.ReadAt(image, int64(start))
	return image, err
}
