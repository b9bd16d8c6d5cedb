package main

import (
	"errors"
	"fmt"

	"fulgur/internal/capture/target"
)

// remedy names the flags that help against err. The packages below do not know them.
func remedy(err error) string {
	if thread := (target.ThreadError{}); errors.As(err, &thread) {
		return fmt.Sprintf(": profile its process with -p %d, or only the thread with fulgur profile -L %d", thread.PID, thread.TID)
	}
	return ""
}
