package encodetest

import "errors"

// ErrFullDisk is the error of [FullDisk].
var ErrFullDisk = errors.New("no space left on device")

// FullDisk is a writer that fails every time.
type FullDisk struct{}

// Write returns [ErrFullDisk].
func (FullDisk) Write([]byte) (int, error) { return 0, ErrFullDisk }
