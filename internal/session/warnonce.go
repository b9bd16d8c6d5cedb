package session

import "fmt"

// maxWarnings limits the printed warnings. A machine may have thousands of broken
// files.
const maxWarnings = 10

// warnOnce prints each warning once, up to a limit.
type warnOnce struct {
	options *Options
	printed map[string]bool
}

func (t *warnOnce) warn(lines []string) {
	if t.printed == nil {
		t.printed = map[string]bool{}
	}
	for _, line := range lines {
		if t.options.Quiet || t.printed[line] || len(t.printed) > maxWarnings {
			continue
		}
		t.printed[line] = true
		if len(t.printed) > maxWarnings {
			line = "more warnings like these are not shown"
		}
		fmt.Fprintln(t.options.Stderr, "fulgur:", line)
	}
}
