package perfdata

import "fmt"

// FormatError reports bytes that violate the perf.data format.
type FormatError struct {
	// File is the file's name as given by the caller.
	File string
	// Offset is the start of the malformed structure in the file, in bytes. In compressed
	// data, it is the offset of the compressed record.
	Offset int64
	// Problem describes the error.
	Problem string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s at offset %#x", e.File, e.Problem, e.Offset)
}
