package procfs

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"fulgur/internal/linux/capability"
)

// maxVDSO bounds the size of the vdso, in bytes. It has a few pages.
const maxVDSO = 1 << 20

// VDSO returns a copy of this process's vDSO, an ELF file. The kernel maps the same
// image into all 64-bit processes, at an address of each process's own.
func VDSO() ([]byte, error) {
	image, err := readVDSO()
	if err != nil {
		return nil, fmt.Errorf("read the vdso: %w", err)
	}
	return image, nil
}

func readVDSO() ([]byte, error) {
	maps, err := Self.Maps()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(maps, func(m Map) bool { return m.Name == "[vdso]" && m.Limit-m.Start <= maxVDSO })
	if i < 0 {
		return nil, errors.New("none is mapped")
	}
	// If the program's file has capabilities, /proc/self/mem belongs to root.
	mem, err := capability.With(capability.SetOf(capability.DACReadSearch), func() (*os.File, error) { return os.Open("/proc/self/mem") })
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, maps[i].Limit-maps[i].Start)
	_, err = mem.ReadAt(image, int64(maps[i].Start))
	return image, err
}
