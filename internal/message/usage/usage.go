// Package usage has the error for impossible requests, and the options that messages name.
// The command's exit code distinguishes the error from a failed measurement.
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
