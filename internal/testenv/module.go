package testenv

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// LoadModule loads a kernel module that the rig put into its VM, unless it is already loaded.
// If there is no such module, the error matches [os.ErrNotExist]: outside the VMs, and where
// the kernel contains the code.
func LoadModule(name string) error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	f, err := os.Open(path.Join("/lib/modules", unix.ByteSliceToString(uts.Release[:]), name+".ko"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", f.Name(), err)
	}
	return nil
}
