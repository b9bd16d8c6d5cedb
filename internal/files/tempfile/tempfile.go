// Package tempfile creates unnamed temporary files. They vanish when they are closed, or
// when the process dies.
package tempfile

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
)

// Create creates an empty file for reading and writing. It has no name, so that no other
// process can open it by path. TMPDIR sets the directory. The default is /var/tmp rather
// than /tmp, which is often in memory; /tmp is used if /var/tmp is not writable. Create
// fails if the file system of TMPDIR does not respond.
func Create() (*os.File, error) {
	dir := os.Getenv("TMPDIR")
	if dir != "" {
		if err := safeopen.Answer(dir); err != nil {
			return nil, fmt.Errorf("TMPDIR: %w", err)
		}
	}
	if f, err := os.OpenFile(cmp.Or(dir, "/var/tmp"), os.O_RDWR|unix.O_TMPFILE, 0o600); err == nil {
		return f, nil
	}
	// The file system may not support O_TMPFILE.
	f, err := os.CreateTemp("", "fulgur-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
