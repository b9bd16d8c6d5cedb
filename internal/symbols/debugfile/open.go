package debugfile

import (
	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/elffile"
)

// openIn opens the ELF file at name below root.
func openIn(root, name string) (*elffile.File, error) {
	file, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	return elffile.FromFile(file)
}

// openFile opens the regular file at name below root. The name may come from a binary. So
// links resolve below root, and only regular files are opened.
func openFile(root, name string) (*safeopen.File, error) {
	return safeopen.Open(root, name, safeopen.Regular)
}
