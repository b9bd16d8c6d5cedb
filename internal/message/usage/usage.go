// Package usage has the error for impossible requests. The command's exit code
// distinguishes it from a failed measurement.
package usage

import (
	"errors"
	"fmt"
)

// Err matches errors caused by options that contradict each other or this machine's
// limits. The command then exits with code 2.
var Err = errors.New("usage")

// usageError is an [Err] whose text is only the message.
type usageError string

func (e usageError) Error() string        { return string(e) }
func (e usageError) Is(target error) bool { return target == Err }

// Errorf returns an [Err] with a message formatted as by fmt.Sprintf.
func Errorf(format string, args ...any) error {
	return usageError(fmt.Sprintf(format, args...))
}

// Option is an option that the user can choose. Only the command line knows its flag.
type Option uint8

// The options of [OptionError].
const (
	// Output is the file to write.
	Output Option = iota + 1
	// Format is the format of the output.
	Format
	// Value is the value of a profile to show or compare.
	Value
)

// OptionError is an [Err] that another choice of an option avoids.
type OptionError struct {
	Option Option
	err    error
}

// OptionErrorf returns an [OptionError] with a message formatted as by fmt.Sprintf.
func OptionErrorf(o Option, format string, args ...any) error {
	return OptionError{o, Errorf(format, args...)}
}

// Error returns the message.
func (e OptionError) Error() string { return e.err.Error() }

// Unwrap returns an [Err].
func (e OptionError) Unwrap() error { return e.err }
