package perfdata

import "fmt"

// FormatError reports bytes that the format of perf.data does not allow.
type FormatError struct {
	// File is the name of the file as given by the caller.
	File string
	// Offset is where in the file the faulty structure begins, in bytes. Of
	// what was compressed, it is that of the compressed record.
	Offset int64
	// Problem says what is wrong there.
	Problem string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s at offset %#x", e.File, e.Problem, e.Offset)
}

// SyntaxError reports a line of text that is not perf script's.
type SyntaxError struct {
	// File is the name of the file as given by the caller, Line the number
	// of the line from 1 on, Offset where in the file it begins, in bytes.
	File   string
	Line   int
	Offset int64
	// Problem says what is wrong there.
	Problem string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s:%d (offset %#x): %s", e.File, e.Line, e.Offset, e.Problem)
}
