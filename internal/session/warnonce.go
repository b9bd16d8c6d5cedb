package session

import "fmt"

// maxTold limits the printed warnings. A machine may have thousands of broken
// files.
const maxTold = 10

// warnOnce prints each warning once, up to a limit.
type warnOnce struct {
	options *Options
	told    map[string]bool
}

func (t *warnOnce) warn(lines []string) {
	if t.told == nil {
		t.told = map[string]bool{}
	}
	for _, line := range lines {
		if t.options.Quiet || t.told[line] || len(t.told) > maxTold {
			continue
		}
		t.told[line] = true
		if len(t.told) > maxTold {
			line = "more warnings like these are not shown"
		}
		fmt.Fprintln(t.options.Stderr, "fulgur:", line)
	}
}
