package stacks

import (
	"fmt"
	"os"
	"path"
)

// Device is the device number of a block device or file system.
type Device struct{ Major, Minor uint32 }

// String returns the kernel's name for the disk, such as "vda", or else the numbers.
func (d Device) String() string {
	numbers := fmt.Sprintf("%d:%d", d.Major, d.Minor)
	link, err := os.Readlink("/sys/dev/block/" + numbers)
	if err != nil {
		return numbers
	}
	return path.Base(link)
}
