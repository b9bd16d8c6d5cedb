package main

import (
	"errors"
	"fmt"

	"fulgur/internal/capture/target"
)

// remedy returns the flags that solve err. The packages below do not know flags.
func remedy(err error) string {
	if thread := (target.ThreadError{}); errors.As(err, &thread) {
		return fmt.Sprintf(": profile its process with -p %d, or only the thread with fulgur profile -L %d", thread.PID, thread.TID)
	}
	return ""
}
