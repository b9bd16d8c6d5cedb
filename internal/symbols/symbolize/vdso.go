package symbolize

import (
	"bytes"

	"fulgur/internal/linux/procfs"
)

// OpenVDSO returns the vDSO of this process. It is the same in every 64-bit process of the
// machine: the kernel maps the same image everywhere, at different addresses.
func OpenVDSO(opts Options) (*ELF, error) {
	image, err := procfs.VDSO()
	if err != nil {
		return nil, err
	}
	return OpenELF(bytes.NewReader(image), int64(len(image)), "[vdso]", opts)
}
