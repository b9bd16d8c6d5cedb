package debugfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/elffile"
)

// openIn opens the ELF file at name below root.
func openIn(root, name string) (*elffile.File, error) {
	file, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	return elffile.FromOS(file)
}

// openFile opens the file at name below root. Symbolic links lead to places
// below root, whatever they say: those of a container mean its own files, and
// must not make us read others.
func openFile(root, name string) (*os.File, error) {
	shown := filepath.Join(root, name)
	// Opening a pipe must not wait for its writer.
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK
	if root == "/" {
		return os.OpenFile(shown, flags, 0)
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	defer func() { _ = unix.Close(dir) }()
	var fd int
	for {
		fd, err = unix.Openat2(dir, strings.TrimLeft(name, "/"), &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT})
		// EAGAIN: something was renamed meanwhile.
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", shown, err)
	}
	return os.NewFile(uintptr(fd), shown), nil
}
