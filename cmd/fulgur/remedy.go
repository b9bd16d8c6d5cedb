package main

import (
	"errors"
	"fmt"

	"fulgur/internal/capture/target"
	"fulgur/internal/message/usage"
)

// remedy returns the flags that solve err. The packages below do not know flags.
func remedy(err error) string {
	if thread := (target.ThreadError{}); errors.As(err, &thread) {
		return fmt.Sprintf(": profile its process with -p %d, or only the thread with fulgur profile -L %d", thread.PID, thread.TID)
	}
	if option := (usage.OptionError{}); errors.As(err, &option) {
		return optionRemedies[option.Option]
	}
	return ""
}

// optionRemedies name the flags of options.
var optionRemedies = map[usage.Option]string{
	usage.Output: ": name them with -o, for example -o name.pb.gz",
	usage.Format: ", or choose a format with --format",
	usage.Value:  ": choose the value to compare with --value",
}
