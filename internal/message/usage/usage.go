// Package usage has the error of who asked for what cannot be: the command's exit
// code tells it from a measurement that failed.
package usage

import (
	"errors"
	"fmt"
)

// Err is what errors are that come from options which contradict each other or
// this machine's limits; the command's exit code is then 2.
var Err = errors.New("usage")

// usageError is an [Err] that says what is wrong and nothing else.
type usageError string

func (e usageError) Error() string        { return string(e) }
func (e usageError) Is(target error) bool { return target == Err }

// Errorf returns an [Err] with a message that is formatted as fmt.Sprintf does.
func Errorf(format string, args ...any) error {
	return usageError(fmt.Sprintf(format, args...))
}
