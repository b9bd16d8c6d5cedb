package symbolize

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"fulgur/internal/linux/procfs"
)

// OpenVDSO returns the vdso of this process, which is that of every 64-bit
// process on the machine: the kernel maps one image, at an address of each
// process's own.
func OpenVDSO(opts Options) (*ELF, error) {
	image, err := readVDSO()
	if err != nil {
		return nil, fmt.Errorf("reading the vdso: %w", err)
	}
	return OpenELF(bytes.NewReader(image), int64(len(image)), "[vdso]", opts)
}

// readVDSO copies the vdso out of this process's memory.
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
