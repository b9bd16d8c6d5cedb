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

// SyntaxError reports a line that is not output of perf script.
type SyntaxError struct {
	// File is the file's name as given by the caller, Line the line number, starting at
	// 1, and Offset the start of the line in the file, in bytes.
	File   string
	Line   int
	Offset int64
	// Problem describes the error.
	Problem string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s:%d (offset %#x): %s", e.File, e.Line, e.Offset, e.Problem)
}
